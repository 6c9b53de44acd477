// SPDX-License-Identifier: Apache-2.0
// A share in host memory as an array of a GPU, without a copy: the GPU's work reads the bytes where they lie. Where CPU
// and GPU have one memory (GB10, Grace, Jetson) that is as fast as memory of the GPU; over PCIe each read crosses the
// bus.
//
//   auto found = broker.Acquire({.name = "frame"});                     // MapMode::kShared
//   if (HostReachOf(0)->kind == HostReach::Kind::kOneMemory) {
//     auto frame = GpuViewOf(found->views[0], 0);                       // frame->data is an address of cuda:0
//   }
#pragma once

#include <cstdint>
#include <optional>

#include <arraybridge/view.h>

#include "proto/boundary/one_memory/host_reach.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// UNAVAILABLE: no driver, or no GPU. FAILED_PRECONDITION: this process does not see the GPU.
Result<HostReach> HostReachOf(int32_t ordinal);

// The same array at the address that the GPU has for its bytes, read-only: a write by the GPU is an error of the driver
// (CUDA_ERROR_ILLEGAL_ADDRESS). The share's arena is mapped once more and registered with the driver, so arrays of the
// CPU are not pinned memory; until the GPU's work has ended that was queued when the last array was dropped, and
// `memory.host.arena_idle` longer. Without elements nothing is registered. UNIMPLEMENTED, NOT_HOST_MEMORY: the view is
// not of a share in host memory that was acquired for reading (MapMode::kShared). UNIMPLEMENTED, HOST_NOT_REACHED:
// HostReachOf says why. RESOURCE_EXHAUSTED, TOO_MANY_REGISTRATIONS: arrays of kRegistrationsMax arenas live here.
Result<View> GpuViewOf(const View& share, int32_t ordinal);
inline constexpr uint64_t kRegistrationsMax = 256;

// True if GpuViewOf does not refuse it with NOT_HOST_MEMORY. Registers nothing.
bool IsShownByGpus(const View& share);

// True if an address of a GPU is one of host memory, so that HostViewOf finds it there. False also if no driver can
// tell.
bool LiesOnHost(const void* address, int32_t ordinal);

// The array of host memory that an array of a GPU is, at its address for the host, after the work of its producer;
// nothing: the memory is the GPU's. Of a share that GpuViewOf has shown it is the share's own memory. The result keeps
// what `array` keeps. Errors of WaitForProducer.
Result<std::optional<View>> HostViewOf(const View& array);

// Arenas that are registered now.
uint64_t RegistrationsLiving();

}  // namespace arraybridge
