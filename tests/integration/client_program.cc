// SPDX-License-Identifier: Apache-2.0
// A client process that a test execs. "put" and "get" print "ok" or the error, and then wait for the end of their
// input, so that the test decides how long the session lives. "fork" and "leave" check one property and exit with 0 if
// it holds.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include <arraybridge/broker.h>

namespace arraybridge {
namespace {

constexpr int64_t kWords = 1 << 16;

uint64_t Word(uint64_t seed, int64_t index) {
  return (seed + 1) * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(index) * 0xD6E8FEB86659FD93ull;
}

const ArraySpec kSpec{.type = {1, 64, 1}, .dtype = "uint64", .shape = {kWords}, .strides = {}};

Status Put(Broker& broker, const std::string& name, uint64_t seed) {
  auto placement = broker.Empty({&kSpec, 1});
  if (!placement.ok()) return placement.status();
  auto* words = static_cast<uint64_t*>(placement->views()[0].data);
  for (int64_t i = 0; i < kWords; ++i) words[i] = Word(seed, i);
  return broker.Publish(*placement, {.name = name}).status();
}

Status Check(const View& view, uint64_t seed) {
  const auto* words = static_cast<const uint64_t*>(view.data);
  if (view.shape != kSpec.shape || view.dtype != "uint64") return Internal("another array");
  for (int64_t i = 0; i < kWords; ++i) {
    if (words[i] != Word(seed, i)) return Internal("word ", i, " differs");
  }
  return Ok();
}

int Answer(const Status& status) {
  std::puts(status.ok() ? "ok" : status.ToString().c_str());
  std::fflush(stdout);
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return status.ok() ? 0 : 1;
}

// Checks a forked child. Returns the number of the first property that does not hold.
int InChild(Broker& broker, Acquired& inherited, Placement& placement, uint64_t parents_sessions) {
  if (!Check(inherited.views[0], 5).ok()) return 1;
  if (broker.client_stats().live_leases != 0) return 2;  // the child owns nothing that it inherited
  if (broker.Publish(placement, {}).ok()) return 3;
  const auto stats = broker.GetStats();
  if (!stats.ok() || stats->sessions != parents_sessions + 1) return 4;
  const auto leases = stats->leases;
  inherited.views.clear();
  if (!broker.Flush().ok()) return 5;
  const auto after = broker.GetStats();
  if (!after.ok() || after->leases != leases) return 6;  // the parent still has its lease
  auto own = broker.Acquire({.name = "fork"});
  if (!own.ok() || !Check(own->views[0], 5).ok()) return 7;
  return 0;
}

// A write in a child succeeds, and the parent never sees it.
int WriteInChild(Placement& placement) {
  auto* const word = static_cast<volatile uint64_t*>(placement.views()[0].data);
  *word = 1;
  const pid_t child = ::fork();
  if (child == 0) {
    *word = 2;
    ::_exit(*word == 2 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 && *word == 1 ? 0 : 1;
}

int Fork(Broker& broker) {
  if (!Put(broker, "fork", 5).ok()) return 10;
  auto placement = broker.Empty({&kSpec, 1});
  auto array = broker.Acquire({.name = "fork"});
  const auto before = broker.GetStats();
  if (!placement.ok() || !array.ok() || !before.ok()) return 11;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(InChild(broker, *array, *placement, before->sessions));
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::printf("in the child: %d\n", status);
    return 12;
  }
  if (WriteInChild(*placement) != 0) return 13;
  if (!Check(array->views[0], 5).ok()) return 14;
  *static_cast<volatile uint64_t*>(placement->views()[0].data) = 1;  // the parent may still write
  array->views.clear();
  // The children have ended, so no process uses the lease. The reclaimer notices their end before it collects.
  for (auto now = broker.GetStats(); now.ok(); now = broker.GetStats()) {
    if (now->leases == 0) return 0;
    if (!broker.Flush().ok()) return 15;
  }
  return 16;
}

// An array acquired without a request, which works from the third attempt on.
Result<Acquired> Held(Broker& broker, const std::string& name) {
  for (int i = 0; i < 3; ++i) {
    auto array = broker.Acquire({.name = name});
    if (!array.ok() || broker.client_stats().catalogue_acquires > 0) return array;
  }
  return Internal("no share is held without a call");
}

// Checks a forked child whose parent holds a share in a hazard slot.
int HoldInChild(Broker& broker, Acquired& inherited) {
  if (!Check(inherited.views[0], 8).ok()) return 1;
  inherited.views.clear();
  auto own = Held(broker, "held");
  if (!own.ok() || !Check(own->views[0], 8).ok()) return 2;
  own->views.clear();
  return broker.Withdraw({.name = "held"}).ok() ? 0 : 3;
}

// A child drops the arrays that it inherited and withdraws the share. The parent loses nothing.
int ForkHeld(Broker& broker) {
  if (!Put(broker, "held", 8).ok()) return 30;
  auto array = Held(broker, "held");
  if (!array.ok()) return 31;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(HoldInChild(broker, *array));
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::printf("in the child: %d\n", status);
    return 32;
  }
  for (int i = 0; i < 50; ++i) {
    if (!Put(broker, "other" + std::to_string(i), 9).ok()) return 33;
  }
  if (!Check(array->views[0], 8).ok()) return 34;
  if (broker.GetStats()->pinned_bytes == 0) return 35;
  array->views.clear();
  for (auto now = broker.GetStats(); now.ok(); now = broker.GetStats()) {
    if (now->pinned_bytes == 0) return 0;
    if (!broker.Flush().ok()) return 36;
  }
  return 37;
}

// Arrays that live until the process ends, as global variables.
Acquired* Global() {
  static Acquired array;
  return &array;
}

int Leave(Broker& broker) {
  if (!Put(broker, "leave", 6).ok()) return 20;
  auto array = broker.Acquire({.name = "leave"}, {.mode = MapMode::kPrivate});
  if (!array.ok()) return 21;
  *Global() = *std::move(array);
  return Check(Global()->views[0], 6).ok() ? 0 : 22;
}

int Main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string verb = argv[2];
  Broker broker({.address = argv[1]});
  if (verb == "fork") return Fork(broker);
  if (verb == "leave") return Leave(broker);
  if (verb == "fork_held") return ForkHeld(broker);
  if (argc < 5) return 2;
  const uint64_t seed = std::stoull(argv[4]);
  if (verb == "put") return Answer(Put(broker, argv[3], seed));
  if (verb == "hold") {
    auto held = Held(broker, argv[3]);
    return Answer(held.ok() ? Check(held->views[0], seed) : held.status());
  }
  const auto mode = verb == "get_private" ? MapMode::kPrivate : MapMode::kShared;
  auto array = broker.Acquire({.name = argv[3]}, {.mode = mode, .wait = std::chrono::seconds(30)});
  return Answer(array.ok() ? Check(array->views[0], seed) : array.status());
}

}  // namespace
}  // namespace arraybridge

int main(int argc, char** argv) { return arraybridge::Main(argc, argv); }
