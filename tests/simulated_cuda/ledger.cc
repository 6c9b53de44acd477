// SPDX-License-Identifier: Apache-2.0
// The ledger: the objects that are alive when the process ends, and counters for tests.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include "tests/simulated_cuda/process.h"

namespace arraybridge::simulated {
namespace {

// All counters by name; names of calls have no version.
std::map<std::string, long> Counters(const Process& process) {
  std::map<std::string, long> counters = process.calls;
  const auto count = [&](const char* name, size_t number) { counters[name] = static_cast<long>(number); };
  const auto of_kind = [&](RangeKind kind) {
    return static_cast<size_t>(std::count_if(process.space.ranges.begin(), process.space.ranges.end(),
                                             [&](const auto& entry) { return entry.second.kind == kind; }));
  };
  count("live_mappings", of_kind(RangeKind::kVmm));
  count("live_allocations", of_kind(RangeKind::kAlloc));
  count("live_legacy_imports", of_kind(RangeKind::kLegacyImport));
  count("live_handles", process.handles.size());
  count("live_reservations", process.space.reservations.size());
  count("live_streams", process.streams.size());
  count("live_events", process.events.size());
  count("live_pinned", process.host.count());
  count("live_modules", process.modules.size());
  count("live_links", process.links.size());
  size_t contexts = 0;
  size_t created = 0;
  for (const Context& context : process.devices.contexts) {
    contexts += context.alive() ? 1 : 0;
    created += context.created;
  }
  count("live_contexts", contexts);
  count("contexts_created", created);
  size_t bytes = 0;
  for (const auto& [device, used] : process.devices.used) bytes += used;
  count("bytes_used", bytes);
  count("copies_done", process.work_done);
  count("kernels_done", process.kernels_done);
  count("recorded_while_imported", process.recorded_while_imported);
  return counters;
}

void WriteReport(const std::string& path, const std::map<std::string, long>& counters) {
  std::ofstream file(path);
  for (const auto& [name, number] : counters) file << name << "=" << number << "\n";
}

// Runs when the process ends. Queued work is never run.
__attribute__((destructor)) void CloseLedger() {
  Process& process = Process::Get();
  if (process.forked) return;
  const Lock lock(process.mutex, std::try_to_lock);  // a thread may have ended while it held the lock
  process.event_file.Remove();
  const auto counters = Counters(process);
  if (!process.config.report.empty()) WriteReport(process.config.report, counters);
  if (!process.config.ledger) return;
  bool clean = true;
  for (const auto& [name, number] : counters) {
    if (!name.starts_with("live_") || number == 0) continue;
    std::fprintf(stderr, "simulated_cuda: ledger: %s=%ld\n", name.c_str(), number);
    clean = false;
  }
  if (!clean) std::abort();
}

}  // namespace

// A counter by name; 0 if it was never counted. For tests in the same process.
extern "C" __attribute__((visibility("default"))) long simulated_cuda_counter(const char* name);
long simulated_cuda_counter(const char* name) {
  Process& process = Process::Get();
  const Lock lock(process.mutex);
  const auto counters = Counters(process);
  const auto found = counters.find(name);
  return found == counters.end() ? 0 : found->second;
}

// For so long neither a query makes progress, nor a host function runs by itself for a guest; a call that waits still
// runs work. For tests of frameworks that would complete their work by polling.
extern "C" __attribute__((visibility("default"))) void simulated_cuda_pause(int milliseconds);
void simulated_cuda_pause(int milliseconds) {
  Process& process = Process::Get();
  const Lock lock(process.mutex);
  process.paused_until = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
}

}  // namespace arraybridge::simulated
