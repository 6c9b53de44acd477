// SPDX-License-Identifier: Apache-2.0
// A Life is one daemon in the sequence of those that continue one another over one DescriptorStore: its number, what it
// took over, and why the daemon before it ended.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/broker/objects/recovered.h"
#include "daemon/memory/descriptor_store.h"

namespace arraybridge::daemon {

struct Life {
  Recovered recovered;
  int64_t began_unix_s = 0;
  std::string last_end;  // of the daemon before it, for people; empty for the first
  // Outlives this object. Null: no process keeps descriptors for the next daemon.
  const DescriptorStore* store = nullptr;
  bool stores = true;  // false: the store has no room for this broker
};

}  // namespace arraybridge::daemon
