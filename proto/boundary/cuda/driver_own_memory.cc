// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/cuda/driver_own_memory.h"

#include <map>

#include "proto/boundary/mutex.h"

namespace arraybridge::cuda {
namespace {

struct Entry {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  std::weak_ptr<const void> memory;
};

struct Registry {
  Mutex mutex;
  std::map<std::string, Entry> entries AB_GUARDED_BY(mutex);
};

// Never destroyed, because blocks may be destroyed after static objects.
Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

}  // namespace

void OwnMemory::Announce(const std::string& handle, CUdeviceptr address, uint64_t bytes,
                         const std::shared_ptr<const void>& memory) {
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  std::erase_if(registry.entries, [](const auto& entry) { return entry.second.memory.expired(); });
  registry.entries.insert_or_assign(handle, Entry{address, bytes, memory});
}

OwnMemory OwnMemory::Find(const std::string& handle) {
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  const auto found = registry.entries.find(handle);
  if (found == registry.entries.end()) return {};
  return {found->second.address, found->second.bytes, found->second.memory.lock()};
}

}  // namespace arraybridge::cuda
