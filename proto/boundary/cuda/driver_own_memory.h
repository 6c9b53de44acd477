// SPDX-License-Identifier: Apache-2.0
// OwnMemory is the GPU memory that this process exports as cudaIpcMemHandles. A driver does not let a process open its
// own handle (error 201), so a client in the daemon's process gets the address behind the handle instead.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "proto/boundary/cuda/driver_abi.h"

namespace arraybridge::cuda {

struct OwnMemory {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  std::shared_ptr<const void> holder;  // keeps the memory alive

  // From now on, while `memory` lives, Find returns it for the 64 bytes of its handle. Thread-safe.
  static void Announce(const std::string& handle, CUdeviceptr address, uint64_t bytes,
                       const std::shared_ptr<const void>& memory);
  // Returns an OwnMemory without a holder if the handle is not of this process. Thread-safe.
  static OwnMemory Find(const std::string& handle);
};

}  // namespace arraybridge::cuda
