// SPDX-License-Identifier: Apache-2.0
// The floor of a round trip between two processes that are both awake: each spins on its own word in shared memory and
// answers in the other's. On one CPU, where the other side cannot run meanwhile, both yield.
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <new>

#include "tests/bench/support.h"

namespace {

using namespace arraybridge::bench;

constexpr int kCalls = 1000;  // between two clock readings

struct Words {
  alignas(64) std::atomic<uint64_t> there{0};
  alignas(64) std::atomic<uint64_t> back{0};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

void Await(const std::atomic<uint64_t>& word, uint64_t wanted, bool yields) {
  while (word.load(std::memory_order_acquire) != wanted) {
    if (yields) ::sched_yield();
  }
}

[[noreturn]] void Answer(Words& words, int cpu, bool yields) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  if (::sched_setaffinity(0, sizeof one, &one) != 0) _exit(1);
  for (uint64_t turn = 1;; ++turn) {
    Await(words.there, turn, yields);
    words.back.store(turn, std::memory_order_release);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argc, argv);
  const int rounds = arguments.Number("rounds", 15);
  const int cpu = arguments.Number("cpu", 0);
  const bool yields = ::sched_getcpu() == cpu;
  void* const shared = ::mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) Fail("mmap");
  Words& words = *new (shared) Words;
  const pid_t child = ::fork();
  if (child < 0) Fail("fork");
  if (child == 0) Answer(words, cpu, yields);
  uint64_t turn = 0;
  const auto times = Interleaved(rounds * 20, 1, {[&] {
                                   for (int i = 0; i < kCalls; ++i) {
                                     words.there.store(++turn, std::memory_order_release);
                                     Await(words.back, turn, yields);
                                   }
                                 }});
  ::kill(child, SIGKILL);
  Print("floor_spin", {{"value", times[0] / kCalls}});
}
