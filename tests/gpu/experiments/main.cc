// SPDX-License-Identifier: Apache-2.0
// Runs one numbered experiment, with every process of it exec'd: `gpu_experiments [--driver PATH] [--small] E3`, or
// lists them, each with its limit in seconds: `--list`. Prints a JSON line for every driver call and one for the
// outcome. Exits with 0 whatever the driver does, because an outcome is a fact, not a failure.
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/gpu/experiments/experiments.h"
#include "tests/gpu/experiments/peer_program.h"

namespace arraybridge::experiments {
namespace {

struct Experiment {
  const char* name;
  const char* title;
  void (*run)(Scene&);
  // What it waits, and what its processes take on a card until they have a context; test_run.py adds that up.
  std::chrono::seconds limit = std::chrono::seconds(20);
};

constexpr std::chrono::seconds k40s(40);
constexpr std::chrono::seconds k60s(60);

constexpr Experiment kExperiments[] = {
    {"E1", "symbols by both ways of asking", Symbols},
    {"E2", "creating and exporting without a context", NoContext},
    {"E3", "the descriptor alone keeps the memory", DescriptorAlone, k40s},
    {"E3b", "the same with no other process on the GPU", DescriptorAloneOnTheGpu, k60s},
    {"E4", "polling and describing a descriptor", DescriptorPolled},
    {"E5", "legacy: the exporter dies", LegacyExporterDies},
    {"E6", "legacy: freed under an importer", LegacyFreed},
    {"E7", "handles opened where they were made", SameProcess},
    {"E8", "legacy: opened twice, and in a second context", DoubleOpen},
    {"E9", "pointer attributes by kind of memory", PointerAttributes},
    {"E10", "PID namespaces", PidNamespaces},
    {"E11", "events and a private /dev/shm", PrivateShm},
    {"E12", "what an interprocess event captures", EventSemantics},
    {"E13", "how long an interprocess event lives", EventLifetime, k60s},
    {"E14", "a counter in shared memory as a fence", CounterFence, k40s},
    {"E15", "other users", OtherUsers},
    {"E16", "hostile descriptors", HostileDescriptors},
    {"E17", "read-only maps", ReadOnlyMaps},
    {"E18", "sizes and offsets", Sizes},
    {"E19", "what each call costs", CostTable, k40s},
    {"E20", "stale bytes in new memory", StaleBytes, k40s},
    {"E21", "sealed host memory, registered", HostBlocks},
    {"E22", "masked devices", MaskedDevices},
    {"E23", "calls during a capture", Captures, k60s},
    {"E24", "the order of a death", OrderOfDeath, k40s},
    {"E25", "MPS and MIG", OtherTenants},
    {"E26", "under a hardened unit's settings", Hardening},
};

int Main(const std::vector<std::string>& words) {
  if (!words.empty() && words[0] == "peer") return RunPeer({words.begin() + 1, words.end()});
  Scene::Options options;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--list") {
      for (const Experiment& each : kExperiments)
        std::printf("%s %lld\n", each.name, static_cast<long long>(each.limit.count()));
      return 0;
    }
    if (words[i] == "--small") {
      options.small = true;
    } else if (words[i] == "--driver" && i + 1 < words.size()) {
      options.driver = words[++i];
    } else {
      options.name = words[i];
    }
  }
  for (const Experiment& each : kExperiments) {
    if (options.name != each.name) continue;
    options.title = each.title;
    options.limit = each.limit;
    Scene scene(options);
    each.run(scene);
    scene.Print();
    return 0;
  }
  std::fputs("gpu_experiments [--driver PATH] [--small] E1..E26 | --list\n", stderr);
  return 64;
}

}  // namespace
}  // namespace arraybridge::experiments

int main(int count, char** words) { return arraybridge::experiments::Main({words + 1, words + count}); }
