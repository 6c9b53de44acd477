// SPDX-License-Identifier: Apache-2.0
// The DeviceTable has the machine's devices that this process sees, and their primary contexts. A physical number
// identifies a device in all processes; an ordinal only in this one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/boundary/cuda/driver_abi.h"
#include "proto/boundary/unique_fd.h"
#include "tests/simulated_cuda/config.h"
#include "tests/simulated_cuda/stream.h"

namespace arraybridge::simulated {

struct Context {
  int ordinal = 0;
  int physical = 0;
  int references = 0;    // 0: destroyed or not yet created
  uint64_t created = 0;  // how often it was created
  std::shared_ptr<Stream> legacy;
  std::map<std::thread::id, std::shared_ptr<Stream>> per_thread;
  UniqueFd exclusive;  // locked while this process has the device

  bool alive() const { return references > 0; }
};

class DeviceTable {
 public:
  explicit DeviceTable(const Config& config);

  int count() const { return static_cast<int>(contexts.size()); }
  bool Has(int ordinal) const { return ordinal >= 0 && ordinal < count(); }
  int Physical(int ordinal) const { return contexts[static_cast<size_t>(ordinal)].physical; }
  // -1 if this process does not see the device.
  int OrdinalOf(int physical) const;
  Context& ContextOf(int ordinal) { return contexts[static_cast<size_t>(ordinal)]; }
  // Null if `context` is not in this table.
  Context* Known(cuda::CUcontext context);
  cuda::CUuuid Uuid(int ordinal) const;

  std::deque<Context> contexts;  // by ordinal; addresses are stable
  std::map<int, uint64_t> used;  // bytes by physical number

 private:
  const Config& config_;
};

inline cuda::CUcontext ToApi(Context* context) { return reinterpret_cast<cuda::CUcontext>(context); }

// The thread's stack of contexts; the last is current.
std::vector<Context*>& CurrentContexts();

}  // namespace arraybridge::simulated
