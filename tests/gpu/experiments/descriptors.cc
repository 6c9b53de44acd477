// SPDX-License-Identifier: Apache-2.0
// E3, E4, E16: properties of an exported descriptor, and other descriptors in its place.
#include <poll.h>

#include <cstdlib>

#include "proto/boundary/result.h"
#include "tests/gpu/experiments/experiments.h"

namespace arraybridge::experiments {

void DescriptorAlone(Scene& scene) {
  const uint64_t bytes = scene.Bytes(64 * kMiB);
  const auto watcher = scene.Start("W");
  const std::string before = watcher->Do("memory").value;
  auto a = scene.Start("A");
  if (!scene.Needs("create", a->Do(Concat("create block ", bytes)))) return;
  scene.Needs("map", a->Do("map block rw"));
  scene.Needs("fill", a->Do("fill block 1"));
  const auto b = scene.StartBare("B");
  {
    const Answer exported = a->Do("export block");
    if (!scene.Needs("export", exported)) return;
    b->Do("keep block", exported.descriptor.get());
  }
  a->Kill();
  a->End();
  scene.Wait(std::chrono::seconds(10));
  scene.Record("free memory before A, after its death", before + ", " + watcher->Do("memory").value);
  {
    const auto c = scene.Start("C");
    const Answer given = b->Do("give block");
    const Answer imported = c->Do(Concat("import block ", bytes), given.descriptor.get());
    scene.Expect("C imports what only B holds", imported.ok());
    if (imported.ok() && scene.Needs("C maps", c->Do("map block r"))) {
      scene.Expect("the bytes are A's", c->Do("compare block 1").value == "0");
    }
  }
  b->Do("drop block");
  scene.Wait(std::chrono::milliseconds(500));
  scene.Record("free memory when B has closed it", watcher->Do("memory").value);
}

// As DescriptorAlone, with no other process on the GPU while nobody but B has the descriptor: without persistence mode
// the driver then de-initialises the GPU, unless B has its device node open too.
void DescriptorAloneOnTheGpu(Scene& scene) {
  const uint64_t bytes = scene.Bytes(64 * kMiB);
  for (const std::string with : {"the device node open", "no device node open"}) {
    auto a = scene.Start("A");
    if (!scene.Needs("create", a->Do(Concat("create block ", bytes)))) return;
    scene.Needs("map", a->Do("map block rw"));
    scene.Needs("fill", a->Do("fill block 1"));
    const Answer exported = a->Do("export block");
    if (!scene.Needs("export", exported)) return;
    const auto b = scene.StartBare("B");
    b->Do("keep block", exported.descriptor.get());
    const Answer nodes = with[0] == 't' ? b->Do("open_nodes") : Answer{};
    a->Kill();
    a->End();
    scene.Wait(std::chrono::seconds(10));
    const auto c = scene.Start("C");
    const Answer given = b->Do("give block");
    const Answer imported = c->Do(Concat("import block ", bytes), given.descriptor.get());
    const bool mapped = imported.ok() && c->Do("map block r").ok();
    const std::string differing = mapped ? c->Do("compare block 1").value : "not mapped";
    scene.Record(Concat("with ", with),
                 Concat(nodes.value, " import: ", imported.value, "; words that differ: ", differing));
    if (with[0] == 't') scene.Expect("with the node open the bytes are A's", differing == "0");
  }
}

void DescriptorPolled(Scene& scene) {
  auto a = scene.Start("A", false);
  if (!scene.Needs("create", a->Do(Concat("create block ", 2 * kMiB)))) return;
  const Answer exported = a->Do("export block");
  if (!scene.Needs("export", exported)) return;
  scene.Record("as it comes", exported.value);
  const auto b = scene.StartBare("B");
  b->Do("keep block", exported.descriptor.get());
  scene.Record("descriptor", b->Do("describe block").ToString());
  const auto poll = [&] { return Concat("poll block ", scene.Takes(std::chrono::seconds(1)).count()); };
  const auto unbroken = [](const Answer& events) {
    return (std::atoi(events.value.c_str()) & (POLLHUP | POLLERR)) == 0;
  };
  const Answer idle = b->Do(poll());
  scene.Record("events while A lives", idle.value);
  scene.Expect("no error and no end while A lives", unbroken(idle));
  a->Kill();
  a->End();
  const Answer alone = b->Do(poll());
  scene.Record("events after its death", alone.value);
  scene.Expect("nor after its death", unbroken(alone));
}

namespace {

// Another byte in place of the one at `place`, in hexadecimal digits.
std::string Spoiled(std::string digits, size_t place) {
  if (digits.size() > 2 * place) digits[2 * place] = digits[2 * place] == '0' ? '1' : '0';
  return digits;
}

// A opens handles of B in which one byte is another.
void SpoiledHandles(Scene& scene, Peer& a) {
  const auto b = scene.Start("B");
  scene.Needs("alloc", b->Do(Concat("alloc legacy ", 2 * kMiB)));
  scene.Needs("event", b->Do("event made"));
  const std::string memory = b->Do("handle legacy").value;
  const std::string event = b->Do("event_handle made").value;
  constexpr size_t places[] = {0, 8, 24, 40, 63};
  for (const size_t place : places) {
    const std::string what = Concat("with another byte at ", place);
    const Answer opened = a.Do(Concat("open spoiled ", Spoiled(memory, place), " ", 2 * kMiB));
    scene.Record("memory " + what, opened.ok() ? "opened" : opened.ToString());
    if (opened.ok()) scene.Needs("closed", a.Do("close spoiled"));
    scene.Record("event " + what, a.Do(Concat("open_event spoiled", place, " ", Spoiled(event, place))).ToString());
    if (opened.died) return scene.Expect("A lives", false);
  }
}

}  // namespace

void HostileDescriptors(Scene& scene) {
  const int count = scene.small() ? 200 : 10000;
  const auto a = scene.Start("A");
  for (const std::string kind : {"memfd", "pipe", "null", "closed", "nvidiactl"}) {
    const Answer said = a->Do(Concat("hostile ", kind, " ", count));
    scene.Record(kind, said.ToString());
    if (said.died) return scene.Expect("A lives", false);
    if (said.ok())
      scene.Expect(kind + " is refused and nothing leaks",
                   said.value.starts_with(std::to_string(count) + " ") && said.value.ends_with("leaked 0"));
  }
  const Answer garbage = a->Do("garbage");
  scene.Record("handles of 64 bytes that no driver made", garbage.ToString());
  scene.Expect("they are refused, and A lives", garbage.value.starts_with("refused"));
  SpoiledHandles(scene, *a);
}

}  // namespace arraybridge::experiments
