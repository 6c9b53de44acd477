// OwnMemory is the GPU memory that this very process hands out as cudaIpcMemHandles. A driver does not let a process
// open its own (error 201), so a client in the daemon's process is given what the handle stands for instead.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "proto/boundary/driver_abi.h"

namespace arraybridge::cuda {

struct OwnMemory {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  std::shared_ptr<const void> holder;  // whoever has it keeps the memory

  // From now on, while `memory` lives, FindOwnMemory knows it by the 64 bytes of its handle. Thread-safe.
  static void Announce(const std::string& handle, CUdeviceptr address, uint64_t bytes,
                       const std::shared_ptr<const void>& memory);
  // Without a holder: it is not this process's. Thread-safe.
  static OwnMemory Find(const std::string& handle);
};

}  // namespace arraybridge::cuda
