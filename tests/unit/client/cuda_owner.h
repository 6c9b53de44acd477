// SPDX-License-Identifier: Apache-2.0
// An owner of simulated GPU memory in a process of its own, and a block of it in the form that a broker grants. All
// bytes of the block are 'A'.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <sys/socket.h>

#include "client/memory/cuda/cuda_copy.h"
#include "client/memory/cuda/cuda_devices.h"
#include "client/memory/memory_mapper.h"
#include "proto/boundary/handle.h"
#include "tests/integration/process.h"
#include "tests/simulated_cuda/driver_fixture.h"

namespace arraybridge {

// The UUID of the simulated machine's first GPU.
inline constexpr const char* kUuid = "GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00";

using cuda::Counter;
using cuda::ExitAfter;
using cuda::kBlock;

inline const std::string kLibrary = DriverUnderTest(SIMULATED_CUDA_LIBRARY);

// The UUID of the first GPU present. REQUIRES on a card: a process of the test's own, which may use the driver.
inline std::string FirstUuid() {
  if (IsSimulated(kLibrary)) return kUuid;
  const auto devices = CudaDevices::OfThisProcess(kLibrary);
  EXPECT_TRUE(devices.ok()) << devices.status().ToString();
  return (*devices)->all().at(0).uuid;
}

// Configures the client's machine. The driver is loaded by the next call.
inline void Machine(const std::string& configuration) { ::setenv("SIMULATED_CUDA", configuration.c_str(), 1); }

inline void ExpectNothingLeft() {
  for (const char* name : {"live_mappings", "live_legacy_imports", "live_handles", "live_reservations"}) {
    EXPECT_EQ(Counter(name), 0) << name;
  }
}

inline View Bytes(void* data, const Device& device, uint64_t size = kBlock) {
  View view;
  view.data = data;
  view.type = {1, 8, 1};
  view.dtype = "uint8";
  view.shape = {static_cast<int64_t>(size)};
  view.strides = {1};
  view.device = device;
  return view;
}

// The value of all bytes of a mapping; -1 if they differ.
inline int All(const Mapping& mapping, const Device& device) {
  const auto copy = CopyToHeap(Bytes(mapping.data(), device, mapping.size()));
  EXPECT_TRUE(copy.ok()) << copy.status().ToString();
  const auto* const bytes = static_cast<const uint8_t*>(copy->data);
  for (uint64_t i = 0; i < mapping.size(); ++i) {
    if (bytes[i] != bytes[0]) return -1;
  }
  return bytes[0];
}

class CudaOwner {
 public:
  // `machine`: the configuration of the owner's driver; `kind`: how it shares.
  CudaOwner(HandleKind kind, const std::string& machine) : kind_(kind) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    socket_.reset(ends[0]);
    const UniqueFd theirs(ends[1]);
    ::setenv("SIMULATED_CUDA", machine.c_str(), 1);
    const std::string way = kind == HandleKind::kCudaVmm ? "vmm" : "legacy";
    process_ = std::make_unique<Process>(std::vector<std::string>{Built(PEER_PROGRAM), way}, ends[1]);
    for (const char* step : {"create", "fill", "synchronize"}) EXPECT_EQ(Do(step), "0") << step;
  }

  // Returns "A" if every byte has that value, else their values.
  std::string Read() { return Do("read"); }
  std::string Free() { return Do("free"); }

  Handle Share() {
    EXPECT_EQ(Do("send"), "0");
    struct {
      cuda::CUipcMemHandle memory;
      cuda::CUipcEventHandle event;
    } message{};
    iovec bytes{&message, sizeof message};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    EXPECT_EQ(::recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC), static_cast<ssize_t>(sizeof message));
    Handle handle;
    handle.kind = kind_;
    handle.arena = 7;
    handle.size = handle.arena_size = cuda::kBlock;
    handle.device = {kDeviceCuda, 5, FirstUuid()};  // the id in the owner's process
    if (kind_ == HandleKind::kCudaIpc) {
      handle.opaque.assign(reinterpret_cast<const char*>(&message.memory), sizeof message.memory);
    } else if (const cmsghdr* rights = CMSG_FIRSTHDR(&header); rights != nullptr) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
      handle.descriptor.reset(descriptor);
    }
    return handle;
  }

 private:
  std::string Do(const std::string& command) {
    process_->Say(command);
    return process_->Line();
  }

  const HandleKind kind_;
  UniqueFd socket_;
  std::unique_ptr<Process> process_;
};

}  // namespace arraybridge
