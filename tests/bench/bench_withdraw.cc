// SPDX-License-Identifier: Apache-2.0
// The cost of a withdrawal while many sessions hold shares: the broker reads the hazard page of each.
#include <sys/mman.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/memory/host/host_backend.h"
#include "proto/boundary/layouts/hazard.h"
#include "tests/bench/support.h"

namespace arraybridge::bench {
using namespace daemon;
namespace {

constexpr uint64_t kSessions = 256;
constexpr uint32_t kSlotsEach = 64;

// A session's page, as its client maps it.
class MappedPage {
 public:
  explicit MappedPage(const UniqueFd& file)
      : base_(::mmap(nullptr, sizeof(hazard::Page), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0)) {
    if (base_ == MAP_FAILED) Fail("mmap");
  }
  ~MappedPage() { ::munmap(base_, sizeof(hazard::Page)); }
  MappedPage(const MappedPage&) = delete;
  MappedPage& operator=(const MappedPage&) = delete;
  hazard::Page& page() { return *static_cast<hazard::Page*>(base_); }

 private:
  void* base_;
};

// A whole Withdraw of the Broker, with 256 sessions of which each holds 64 other shares; the floor reads as many words.
void Withdraw(int rounds) {
  Config config;
  config.host_capacity_bytes = 1 << 20;
  config.limits.sessions_per_uid = kSessions + 1;
  config.limits.descriptors_per_uid = 8 * kSessions;
  const auto backend = MakeHostBackend({config.host_capacity_bytes, false});
  Broker broker(config, {backend.get()});
  const SessionId maker = Must(broker.OpenSession({})).session;
  const auto arena = Must(broker.Allocate(maker, {"default", Device{}, 4096}));
  if (!broker.Mapped(maker, ArenaId{arena.handle.arena}).ok()) Fail("Mapped");
  Must(broker.ExportCatalogue(maker, "default"));
  std::vector<std::unique_ptr<MappedPage>> pages;
  for (uint64_t i = 0; i < kSessions; ++i) {
    const SessionId session = Must(broker.OpenSession({})).session;
    pages.push_back(std::make_unique<MappedPage>(Must(broker.ExportHazardPage(session, "default"))));
    for (uint32_t word = 0; word < kSlotsEach; ++word) {
      pages.back()->page().words[word] = hazard::WordOf(1000 + i * kSlotsEach + word, 1);
    }
    pages.back()->page().high = kSlotsEach;
  }
  PublishCall call;
  call.ns = "default";
  call.name = "frame";
  call.arena = ArenaId{arena.handle.arena};
  call.arena_generation = arena.handle.generation;
  call.size = 256;
  const ShareKey key{"frame", ShareId{}, 0};
  uint64_t sum = 0;
  std::vector<double> values;
  std::vector<double> floors;
  for (int i = 0; i < rounds * 200; ++i) {
    double start = NowMicroseconds();
    for (const auto& page : pages) {
      for (uint32_t word = 0; word < kSlotsEach; ++word) sum += page->page().words[word];
    }
    floors.push_back(NowMicroseconds() - start);
    // The broker spends a limited part of the time on reading pages and delays further withdrawals, so this limits
    // their rate.
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    Must(broker.Publish(maker, call));
    start = NowMicroseconds();
    Must(broker.Withdraw(maker, "default", {&key, 1}));
    values.push_back(NowMicroseconds() - start);
    if (broker.TakeReturned(maker, 1).size() != 1) Fail("the bytes did not come back");
  }
  if (sum == 0) Fail("nothing was read");
  Print("withdraw_256", {{"floor", Median(floors)}, {"value", Median(values)}});
}

}  // namespace
}  // namespace arraybridge::bench

int main(int argc, char** argv) {
  using namespace arraybridge::bench;
  const Arguments arguments(argc, argv);
  Withdraw(arguments.Number("rounds", 15));
}
