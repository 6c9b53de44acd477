// SPDX-License-Identifier: Apache-2.0
// E5 to E8: the 64 bytes of a cudaIpcMemHandle.
#include <optional>

#include "proto/boundary/result.h"
#include "tests/gpu/experiments/experiments.h"

namespace arraybridge::experiments {
namespace {

// Makes a filled block in A; returns its handle.
std::optional<std::string> Shared(Scene& scene, Peer& a, uint64_t bytes) {
  if (!scene.Needs("A allocates", a.Do(Concat("alloc block ", bytes)))) return {};
  if (!scene.Needs("A fills", a.Do("fill block 1"))) return {};
  Answer handle = a.Do("handle block");
  if (!scene.Needs("A has a handle", handle)) return {};
  return handle.value;
}

}  // namespace

void LegacyExporterDies(Scene& scene) {
  const uint64_t bytes = scene.Bytes(64 * kMiB);
  const auto watcher = scene.Start("W");
  auto a = scene.Start("A");
  const auto handle = Shared(scene, *a, bytes);
  if (!handle.has_value()) return;
  auto b = scene.Start("B");
  if (!scene.Needs("B opens", b->Do(Concat("open block ", *handle, " ", bytes)))) return;
  scene.Expect("B reads A's bytes", b->Do("compare block 1").value == "0");
  scene.Record("free memory with A", watcher->Do("memory").value);
  a->Kill();
  a->End();
  scene.Wait(std::chrono::seconds(1));
  scene.Record("B reads after A's death: words that differ", b->Do("compare block 1").ToString());
  scene.Record("free memory after A's death", watcher->Do("memory").value);
  scene.Record("B closes", b->Do("close block").ToString());
  scene.Wait(std::chrono::milliseconds(500));
  scene.Record("free memory after that", watcher->Do("memory").value);
}

void LegacyFreed(Scene& scene) {
  const uint64_t bytes = scene.Bytes(64 * kMiB);
  const auto a = scene.Start("A");
  const auto handle = Shared(scene, *a, bytes);
  if (!handle.has_value()) return;
  const auto b = scene.Start("B");
  if (!scene.Needs("B opens", b->Do(Concat("open block ", *handle, " ", bytes)))) return;
  scene.Record("A frees", a->Do("free block").ToString());
  scene.Record("A allocates the same", a->Do(Concat("alloc block ", bytes)).ToString());
  scene.Record("A fills it anew", a->Do("fill block 1000000").ToString());
  scene.Record("B: words that are not the old ones", b->Do("compare block 1").ToString());
  scene.Record("B: words that are not the new ones", b->Do("compare block 1000000").ToString());
}

void SameProcess(Scene& scene) {
  const auto a = scene.Start("A");
  const auto handle = Shared(scene, *a, 2 * kMiB);
  if (!handle.has_value()) return;
  const Answer own = a->Do(Concat("open again ", *handle, " ", 2 * kMiB));
  scene.Expect(Concat("its own handle is refused with 201, not ", own.ToString()), own.code == 201);
  scene.Needs("an event", a->Do("event made"));
  const Answer event_handle = a->Do("event_handle made");
  if (scene.Needs("its handle", event_handle)) {
    const Answer event = a->Do("open_event opened " + event_handle.value);
    scene.Expect(Concat("its own event is refused with 201, not ", event.ToString()), event.code == 201);
  }
  if (!scene.Needs("a VMM block", a->Do(Concat("create vmm ", 2 * kMiB)))) return;
  const Answer exported = a->Do("export vmm");
  const Answer imported = a->Do(Concat("import own ", 2 * kMiB), exported.descriptor.get());
  scene.Record("its own descriptor, imported", imported.ToString());
  if (imported.ok()) scene.Record("and mapped", a->Do("map own rw").ToString());
}

void DoubleOpen(Scene& scene) {
  const auto a = scene.Start("A");
  const auto handle = Shared(scene, *a, 2 * kMiB);
  if (!handle.has_value()) return;
  const auto b = scene.Start("B");
  const std::string suffix = Concat(*handle, " ", 2 * kMiB);
  const Answer first = b->Do("open one " + suffix);
  const Answer second = b->Do("open two " + suffix);
  if (!scene.Needs("B opens", first)) return;
  scene.Record("the second time",
               second.ok() ? second.value == first.value ? "the same address" : "another address" : second.ToString());
  scene.Expect("opened twice at one address", second.ok() && second.value == first.value);
  scene.Record("its range and attributes", b->Do("pointer one").ToString());
  scene.Record("first close", b->Do("close one").ToString());
  scene.Expect("still readable after one close", b->Do("compare two 1").value == "0");
  if (second.ok()) scene.Expect("second close", b->Do("close two").ok());
  scene.Record("third close", b->Do("close two").ToString());
  const auto c = scene.Start("C");
  scene.Needs("C opens", c->Do("open one " + suffix));
  const Answer context = c->Do("second_context");
  scene.Record("second context", context.ToString());
  if (!context.ok()) return;
  const Answer elsewhere = c->Do("open two " + suffix);
  scene.Record("opened in it", elsewhere.ToString());
  scene.Expect("a second context may not open it", !elsewhere.ok());
}

}  // namespace arraybridge::experiments
