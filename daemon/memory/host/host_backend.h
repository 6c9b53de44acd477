// SPDX-License-Identifier: Apache-2.0
// The host backend owns CPU memory. Every block is a memfd that is populated before it is handed out, exported as
// descriptors, and sealed by the kernel.
#pragma once

#include <cstdint>
#include <memory>

#include "daemon/memory/memory_backend.h"

namespace arraybridge::daemon {

struct HostBackendOptions {
  uint64_t capacity_bytes = 0;
  bool huge_pages = true;  // for blocks of at least 2 MiB, where the kernel allows it
};

std::unique_ptr<MemoryBackend> MakeHostBackend(const HostBackendOptions& options);

}  // namespace arraybridge::daemon
