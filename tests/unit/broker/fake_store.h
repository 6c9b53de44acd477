// SPDX-License-Identifier: Apache-2.0
// A store of descriptors in this process.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <string>
#include <vector>

#include "daemon/memory/descriptor_store.h"

namespace arraybridge::daemon {

class FakeStore final : public DescriptorStore {
 public:
  Status Store(std::span<const Entry> entries, Until = Until::kHandled) override {
    if (full) return ResourceExhausted("the store is full").Because("STORE_FULL");
    for (const Entry& entry : entries) held_.push_back({std::string(entry.name), Duplicate(entry.fd)});
    return busy ? Unavailable("the holder does not answer") : Ok();
  }
  void Remove(std::string_view name) override {
    std::erase_if(held_, [&](const StoredDescriptor& each) { return each.name == name; });
  }
  Usage usage() const override { return {.entries = held_.size(), .entries_max = entries_max}; }

  // What the next daemon is started with.
  std::vector<StoredDescriptor> PassOn() const {
    std::vector<StoredDescriptor> passed;
    for (const StoredDescriptor& each : held_) passed.push_back({each.name, Duplicate(each.fd.get())});
    return passed;
  }
  bool Has(std::string_view name) const {
    return std::ranges::find(held_, name, &StoredDescriptor::name) != held_.end();
  }
  void Drop(std::string_view name) { Remove(name); }

  uint64_t entries_max = 8000;  // only told; `full` refuses
  bool full = false;
  bool busy = false;  // stores all the same, as a holder that goes on later

 private:
  static UniqueFd Duplicate(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

  std::vector<StoredDescriptor> held_;
};

}  // namespace arraybridge::daemon
