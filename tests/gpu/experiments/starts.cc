// SPDX-License-Identifier: Apache-2.0
// E27, E28, E29: calls without a context and beside running work, and the start of a process.
#include <cstdlib>

#include "proto/boundary/result.h"
#include "tests/gpu/experiments/experiments.h"
#include "tests/gpu/experiments/record.h"

namespace arraybridge::experiments {
namespace {

using namespace std::chrono_literals;

// What a process lets others open: a block, 64 bytes of memory, an event.
struct Offer {
  UniqueFd descriptor;
  std::string handles;  // "<of the memory> <of the event>"
};

Offer Offered(Scene& scene, Peer& owner, uint64_t bytes) {
  Offer offer;
  scene.Needs("create", owner.Do(Concat("create block ", bytes)));
  Answer exported = owner.Do("export block");
  scene.Needs("export", exported);
  offer.descriptor = std::move(exported.descriptor);
  scene.Needs("alloc", owner.Do(Concat("alloc legacy ", bytes)));
  scene.Needs("event", owner.Do("event made"));
  scene.Needs("record", owner.Do("record made"));
  offer.handles = Concat(owner.Do("handle legacy").value, " ", owner.Do("event_handle made").value);
  return offer;
}

bool Scratch(Scene& scene, Peer& peer) {
  const uint64_t bytes = scene.small() ? 4 * kMiB : 1024 * kMiB;
  return scene.Needs("scratch", peer.Do(Concat("create scratch ", bytes))) &&
         scene.Needs("map", peer.Do("map scratch rw"));
}

// Milliseconds that a command takes.
std::string Took(Peer& peer, const std::string& command) {
  const auto begun = std::chrono::steady_clock::now();
  const Answer answer = peer.Do(command);
  const auto milliseconds = static_cast<uint64_t>(MicrosecondsSince(begun) / 1000);
  return answer.ok() ? Concat(milliseconds, " ms") : answer.ToString();
}

// Several starts, one after the other: cuInit, and the first context.
std::string Starting(Scene& scene) {
  std::string said;
  for (int i = 0; i < 3; ++i) {
    const auto a = scene.StartUnloaded("A");
    const std::string loaded = Took(*a, "load");
    said += Concat(said.empty() ? "" : "; ", loaded, " and ", Took(*a, "context"));
    a->Kill();
    a->End();
    scene.Wait(1s);  // without persistence mode the driver then closes the GPU
  }
  return said;
}

}  // namespace

void WithoutAContext(Scene& scene) {
  constexpr uint64_t bytes = 2 * kMiB;
  const auto owner = scene.Start("B");
  const Offer offer = Offered(scene, *owner, bytes);
  const std::string command = Concat("bare ", bytes, " ", offer.handles);
  const auto a = scene.Start("A", false);
  const Answer none = a->Do(command, offer.descriptor.get());
  scene.Needs("A lives", none);
  scene.Record("a process without one", none.value);
  scene.Expect("none of these calls made a primary context", a->Do("active").value == "0");
  const auto c = scene.Start("C");
  const Answer another = c->Do(command, offer.descriptor.get());
  scene.Needs("C lives", another);
  scene.Record("a thread without one, in a process that has one", another.value);
}

void BesideKernels(Scene& scene) {
  constexpr uint64_t bytes = 2 * kMiB;
  const auto owner = scene.Start("B");
  const Offer offer = Offered(scene, *owner, bytes);
  const auto a = scene.Start("A");
  if (!Scratch(scene, *a)) return;
  const auto made = [&](std::chrono::milliseconds busy) {
    return a->Do(Concat("beside ", scene.Takes(busy).count(), " ", bytes, " ", offer.handles), offer.descriptor.get());
  };
  scene.Record("the first time on an idle GPU", made(0ms).ToString());
  scene.Record("the second time", made(0ms).ToString());
  scene.Takes(20 * 300ms);  // if each call waits for the work
  scene.Record("while work of this process runs", made(300ms).ToString());
  const auto z = scene.Start("Z");
  if (!Scratch(scene, *z)) return;
  scene.Needs("an event", z->Do("event ended"));
  scene.Record("Z's work", z->Do(Concat("busy scratch ", scene.Takes(4s).count())).ToString());
  scene.Needs("recorded", z->Do("record ended"));
  scene.Record("while work of another process runs", made(0ms).ToString());
  scene.Record("Z's work then (600: it still runs)", z->Do("query ended").ToString());
}

void Starts(Scene& scene) {
  scene.Wait(2s);
  scene.Record("cuInit and a context while no process has the GPU open", Starting(scene));
  const auto watcher = scene.Start("W");
  scene.Record("while another one has it open", Starting(scene));
  const auto free = [&] { return std::atoll(watcher->Do("memory").value.c_str()) / int64_t{kMiB}; };
  const int64_t before = free();
  const auto a = scene.Start("A", false);
  const int64_t loaded = free();
  scene.Needs("a context", a->Do("context"));
  const int64_t current = free();
  scene.Record("GPU memory of cuInit, of a context", Concat(before - loaded, " MiB, ", loaded - current, " MiB"));
}

}  // namespace arraybridge::experiments
