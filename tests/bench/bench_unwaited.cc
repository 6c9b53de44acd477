// SPDX-License-Identifier: Apache-2.0
// An unwaited put of 4 KiB: the cost for its caller, beside a memcpy of as many bytes into warm shared memory. Bursts
// of a quarter of a session queue; `sustained` includes the time until the broker has served all of them.
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <arraybridge/broker.h>

#include "tests/bench/support.h"

namespace arraybridge::bench {
namespace {

constexpr size_t kBytes = 4096;
constexpr size_t kBurst = 64;

class Bench {
 public:
  explicit Bench(const Arguments& arguments)
      : broker_({.address = arguments.Text("address"),
                 .ns = "bench",
                 .timeout = std::chrono::seconds(30),
                 .client = "bench"}),
        source_(kBytes, 7) {
    for (size_t i = 0; i < kBurst; ++i) names_.push_back("pipeline/stage-0000/frame-" + std::to_string(100 + i));
    constexpr size_t kFloorBytes = kBurst * kBytes;
    floor_ = static_cast<char*>(
        ::mmap(nullptr, kFloorBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
    if (floor_ == MAP_FAILED) Fail("mmap");
    for (int i = 0; i < 3; ++i) Burst(), Clear();  // the queue is there, the arena warm
  }

  void Run(int rounds) {
    std::vector<double> floors, values, sustained;
    const uint64_t before = broker_.client_stats().unwaited_publishes;
    for (int i = 0; i < rounds; ++i) {
      const double start = NowMicroseconds();
      for (size_t n = 0; n < kBurst; ++n) std::memcpy(floor_ + n * kBytes, source_.data(), kBytes);
      const double copied = NowMicroseconds();
      Burst();
      const double put = NowMicroseconds();
      Must(broker_.Confirm());
      const double taken = NowMicroseconds();
      Clear();
      floors.push_back((copied - start) / kBurst);
      values.push_back((put - copied) / kBurst);
      sustained.push_back((taken - copied) / kBurst);
    }
    const uint64_t unwaited = broker_.client_stats().unwaited_publishes - before;
    if (unwaited < static_cast<uint64_t>(rounds) * kBurst) Fail("some puts were waited for");
    Print("ring_put_4kib", {{"floor", Median(floors)}, {"value", Median(values)}, {"sustained", Median(sustained)}});
  }

 private:
  void Burst() {
    const View view = *Describe(source_.data(), {2, 32, 1}, {kBytes / 4}, {}, Device{}, true, nullptr);
    for (const std::string& name : names_) {
      Must(broker_.Put({&view, 1}, {.name = name, .wait = false}));
    }
  }
  void Clear() {
    for (const std::string& name : names_) Must(broker_.Withdraw({.name = name}));
  }

  Broker broker_;
  std::vector<char> source_;
  std::vector<std::string> names_;
  char* floor_ = nullptr;
};

}  // namespace
}  // namespace arraybridge::bench

int main(int argc, char** argv) {
  using namespace arraybridge::bench;
  const Arguments arguments(argc, argv);
  Bench(arguments).Run(arguments.Number("rounds", 15) * 20);
}
