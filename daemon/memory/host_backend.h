// The host backend owns CPU memory: every block is a memfd, populated before it is promised, exported as descriptors
// and sealed by the kernel.
#pragma once

#include <cstdint>
#include <memory>

#include "daemon/memory/memory_backend.h"

namespace arraybridge {

struct HostBackendOptions {
  uint64_t capacity_bytes = 0;
  bool huge_pages = true;  // where the kernel allows it, for blocks of at least 2 MiB
};

std::unique_ptr<MemoryBackend> MakeHostBackend(const HostBackendOptions& options);

}  // namespace arraybridge
