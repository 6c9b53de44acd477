// SPDX-License-Identifier: Apache-2.0
// Runs one numbered experiment, with every process of it exec'd: `gpu_experiments [--driver PATH] [--small] [--limit
// SECONDS] E3`, or lists them, each with its estimate, its limit in seconds and its title: `--list`. Prints a JSON line
// for every driver call and one for the outcome. Exits with 0 whatever the driver does, because an outcome is a fact,
// not a failure.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/gpu/experiments/experiments.h"
#include "tests/gpu/experiments/peer_program.h"

namespace arraybridge::experiments {
namespace {

using namespace std::chrono_literals;

struct Experiment {
  const char* name;
  const char* title;
  void (*run)(Scene&);
  std::chrono::seconds estimate;  // on a card
  // What it waits, and what its processes take on a card until they have a context; test_run.py adds that up.
  std::chrono::seconds limit;
};

constexpr Experiment kExperiments[] = {
    {"E1", "symbols by both ways of asking", Symbols, 2s, 20s},
    {"E2", "creating and exporting without a context", NoContext, 3s, 20s},
    {"E3", "the descriptor alone keeps the memory", DescriptorAlone, 14s, 40s},
    {"E3b", "the same with no other process on the GPU", DescriptorAloneOnTheGpu, 26s, 60s},
    {"E4", "polling and describing a descriptor", DescriptorPolled, 4s, 20s},
    {"E5", "legacy: the exporter dies", LegacyExporterDies, 6s, 20s},
    {"E6", "legacy: freed under an importer", LegacyFreed, 3s, 20s},
    {"E7", "handles opened where they were made", SameProcess, 2s, 20s},
    {"E8", "legacy: opened twice, and in a second context", DoubleOpen, 4s, 20s},
    {"E9", "pointer attributes by kind of memory", PointerAttributes, 3s, 20s},
    {"E10", "PID namespaces", PidNamespaces, 5s, 20s},
    {"E11", "events and a private /dev/shm", PrivateShm, 5s, 20s},
    {"E12", "what an interprocess event captures", EventSemantics, 7s, 20s},
    {"E13", "how long an interprocess event lives", EventLifetime, 22s, 80s},
    {"E14", "a counter in shared memory as a fence", CounterFence, 6s, 40s},
    {"E15", "other users", OtherUsers, 5s, 20s},
    {"E16", "hostile descriptors", HostileDescriptors, 6s, 20s},
    {"E17", "read-only maps", ReadOnlyMaps, 4s, 20s},
    {"E18", "sizes and offsets", Sizes, 3s, 20s},
    {"E19", "what each call costs", CostTable, 25s, 60s},
    {"E20", "stale bytes in new memory", StaleBytes, 14s, 40s},
    {"E21", "sealed host memory, registered", HostBlocks, 2s, 20s},
    {"E22", "masked devices", MaskedDevices, 3s, 20s},
    {"E23", "calls during a capture", Captures, 10s, 60s},
    {"E24", "the order of a death", OrderOfDeath, 10s, 40s},
    {"E25", "MPS and MIG", OtherTenants, 0s, 20s},
    {"E26", "under a hardened unit's settings", Hardening, 4s, 20s},
    {"E27", "calls in a thread without a context", WithoutAContext, 4s, 20s},
    {"E28", "calls while work runs, here and elsewhere", BesideKernels, 12s, 60s},
    {"E29", "how long a process takes to start", Starts, 18s, 60s},
    {"E30", "no device is visible", HiddenDevices, 3s, 20s},
};

int Main(const std::vector<std::string>& words) {
  if (!words.empty() && words[0] == "peer") return RunPeer({words.begin() + 1, words.end()});
  Scene::Options options;
  auto within = std::chrono::seconds::max();
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--list") {
      for (const Experiment& each : kExperiments)
        std::printf("%s %lld %lld %s\n", each.name, static_cast<long long>(each.estimate.count()),
                    static_cast<long long>(each.limit.count()), each.title);
      return 0;
    }
    if (words[i] == "--small") {
      options.small = true;
    } else if (words[i] == "--driver" && i + 1 < words.size()) {
      options.driver = words[++i];
    } else if (words[i] == "--limit" && i + 1 < words.size()) {
      within = std::chrono::seconds(std::atoi(words[++i].c_str()));
    } else {
      options.name = words[i];
    }
  }
  for (const Experiment& each : kExperiments) {
    if (options.name != each.name) continue;
    options.title = each.title;
    options.limit = std::min(each.limit, within);
    Scene scene(options);
    each.run(scene);
    scene.Print();
    return 0;
  }
  std::fputs("gpu_experiments [--driver PATH] [--small] [--limit SECONDS] E1..E30 | --list\n", stderr);
  return 64;
}

}  // namespace
}  // namespace arraybridge::experiments

int main(int count, char** words) { return arraybridge::experiments::Main({words + 1, words + count}); }
