// SPDX-License-Identifier: Apache-2.0
// E12, E13, E14, E23: order between streams of two processes.
#include <chrono>
#include <memory>
#include <string>

#include "proto/boundary/result.h"
#include "tests/gpu/experiments/experiments.h"

namespace arraybridge::experiments {
namespace {

using namespace std::chrono_literals;

// Makes a mapped block `name` in A, filled from `seed`.
bool Make(Scene& scene, Peer& a, const std::string& name, uint64_t bytes, int seed) {
  return scene.Needs("create " + name, a.Do(Concat("create ", name, " ", bytes))) &&
         scene.Needs("map " + name, a.Do("map " + name + " rw")) &&
         scene.Needs("fill " + name, a.Do(Concat("fill ", name, " ", seed)));
}

// Maps A's block of that name in B.
bool Share(Scene& scene, Peer& a, Peer& b, const std::string& name, uint64_t bytes) {
  const Answer exported = a.Do("export " + name);
  return scene.Needs("import " + name, b.Do(Concat("import ", name, " ", bytes), exported.descriptor.get())) &&
         scene.Needs("B maps " + name, b.Do("map " + name + " rw"));
}

// Makes an event `name` in A; returns its handle.
std::string Event(Scene& scene, Peer& a, const std::string& name) {
  scene.Needs("event", a.Do("event " + name));
  const Answer handle = a.Do("event_handle " + name);
  scene.Needs("event handle", handle);
  return handle.value;
}

std::string Busy(Scene& scene, std::chrono::milliseconds time) {
  return Concat("busy scratch ", scene.Takes(time).count());
}

// Waits for the event on the host, at most `time`.
std::string AwaitWithin(Scene& scene, const std::string& event, std::chrono::milliseconds time) {
  return Concat("await ", event, " ", scene.Takes(time).count());
}

}  // namespace

void EventSemantics(Scene& scene) {
  const uint64_t bytes = scene.Bytes(64 * kMiB);
  const uint64_t scratch = scene.small() ? 4 * kMiB : 8192 * kMiB;
  const auto a = scene.Start("A");
  const auto b = scene.Start("B");
  if (!Make(scene, *a, "shared", bytes, 1) || !Make(scene, *a, "new", bytes, 1000)) return;
  if (!scene.Needs("scratch", a->Do(Concat("create scratch ", scratch))) ||
      !scene.Needs("map", a->Do("map scratch rw")))
    return;
  if (!Share(scene, *a, *b, "shared", bytes)) return;
  const std::string handle = Event(scene, *a, "made");
  if (!scene.Needs("B opens the event", b->Do("open_event opened " + handle))) return;
  scene.Expect("an event never recorded counts as done", b->Do("query opened").code == 0);
  scene.Record("A's work before the record", a->Do(Busy(scene, 1s)).ToString());
  scene.Needs("A copies new bytes in", a->Do("copy shared new"));
  scene.Needs("A records", a->Do("record made"));
  scene.Record("B asks at once", b->Do("query opened").ToString());
  scene.Needs("B waits", b->Do("wait opened"));
  // Records again after more work: the wait above does not see it.
  scene.Record("A's work after the record", a->Do(Busy(scene, 1s)).ToString());
  scene.Needs("A records again", a->Do("record made"));
  scene.Expect("B reads new bytes only", b->Do("compare shared 1000").value == "0");
  scene.Record("the later record when B had read", a->Do("query made").ToString());
  const Answer legacy = a->Do(Concat("legacy_waits scratch ", scene.Takes(1s).count()));
  scene.Expect(Concat("synchronising the legacy stream waits for a thread's own default stream: ", legacy.ToString()),
               legacy.value == "waited");
}

void EventLifetime(Scene& scene) {
  {
    const auto a = scene.Start("A");
    scene.Record("until refused", a->Do(Concat("events_until_refused ", scene.small() ? 1100 : 30000)).value);
  }
  {
    const auto a = scene.Start("A");
    const auto b = scene.Start("B");
    const std::string handle = Event(scene, *a, "made");
    a->Do("destroy made");
    const Answer opened = b->Do("open_event opened " + handle);
    scene.Expect(Concat("destroyed before it is opened: refused with 1, not ", opened.ToString()), opened.code == 1);
  }
  {
    auto a = scene.Start("A");
    const auto b = scene.Start("B");
    if (!scene.Needs("scratch", a->Do(Concat("create scratch ", scene.small() ? 4 * kMiB : 8192 * kMiB)))) return;
    scene.Needs("map", a->Do("map scratch rw"));
    const auto c = scene.Start("C");
    const std::string handle = Event(scene, *a, "made");
    for (Peer* const each : {b.get(), c.get()}) {
      scene.Needs("opens", each->Do("open_event opened " + handle));
      scene.Needs("an event of its own", each->Do("event after"));
    }
    scene.Record("A's work", a->Do(Busy(scene, 3s)).ToString());
    scene.Needs("A records", a->Do("record made"));
    scene.Needs("C's stream waits", c->Do("wait opened"));
    scene.Needs("and records", c->Do("record after"));
    a->Kill();
    a->End();
    scene.Record("A dies with the event pending: B asks", b->Do(AwaitWithin(scene, "opened", 3s)).ToString());
    scene.Record("C's stream, which waited before that", c->Do(AwaitWithin(scene, "after", 3s)).ToString());
    scene.Record("C synchronises it, 3 s at most", scene.Within(*c, "sync", 3s).ToString());
    scene.Record("C's context then", c->Do("memory").ToString());
    scene.Record("B's stream waits now", b->Do("wait opened").ToString());
    scene.Record("and records", b->Do("record after").ToString());
    scene.Record("and goes on", b->Do(AwaitWithin(scene, "after", 3s)).ToString());
    scene.Record("B synchronises its stream, 3 s at most", scene.Within(*b, "sync", 3s).ToString());
    scene.Record("B's context then", b->Do("memory").ToString());
  }
  const auto a = scene.Start("A");
  const auto b = scene.Start("B");
  const std::string handle = Event(scene, *a, "made");
  scene.Needs("B opens", b->Do("open_event opened " + handle));
  scene.Record("destroyed under an importer", a->Do("destroy made").ToString());
  scene.Record("then B waits", b->Do("wait opened").ToString());
  scene.Record("and synchronises, 3 s at most", scene.Within(*b, "sync", 3s).ToString());
}

void CounterFence(Scene& scene) {
  const int rounds = scene.small() ? 500 : 100000;
  const auto a = scene.Start("A");
  const auto b = scene.Start("B");
  if (!Make(scene, *a, "counter", 2 * kMiB, 0) || !Share(scene, *a, *b, "counter", 2 * kMiB)) return;
  // The first words are 0, 1, 2 ...: the counter itself starts at 0.
  b->Say(Concat("wait_value counter 1 ", rounds));
  const Answer written = a->Do(Concat("write_value counter 1 ", rounds));
  if (written.code == 500) return scene.CannotRun("the driver has no stream memory operations");
  scene.Expect("written", written.ok());
  scene.Expect("awaited", b->Hear().ok());
  const auto c = scene.Start("C");
  if (!Share(scene, *a, *c, "counter", 2 * kMiB)) return;
  b->Say(Concat("wait_value counter ", rounds + 1, " ", rounds + 1));
  a->Kill();
  scene.Wait(500ms);
  scene.Needs("another process writes for the dead one",
              c->Do(Concat("write_value counter ", rounds + 1, " ", rounds + 1)));
  scene.Expect("the waiter runs on", b->Hear().ok());
}

void Captures(Scene& scene) {
  for (const std::string call : {"map", "alloc", "record", "synchronize"}) {
    for (const std::string mode : {"plain", "relaxed"}) {
      const auto a = scene.Start("A");
      const Answer said = a->Do("capture " + call + " " + mode);
      scene.Record(call + ", " + mode, said.ToString());
    }
  }
}

}  // namespace arraybridge::experiments
