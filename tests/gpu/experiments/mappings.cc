// SPDX-License-Identifier: Apache-2.0
// E17, E18, E20, E21: rights, sizes and stale bytes of mapped memory.
#include "proto/boundary/result.h"
#include "tests/gpu/experiments/experiments.h"

namespace arraybridge::experiments {

void ReadOnlyMaps(Scene& scene) {
  constexpr uint64_t bytes = 2 * kMiB;
  const auto a = scene.Start("A");
  if (!scene.Needs("create", a->Do(Concat("create block ", bytes))) || !scene.Needs("map", a->Do("map block rw")))
    return;
  scene.Needs("fill", a->Do("fill block 1"));
  {
    const auto b = scene.Start("B");
    const Answer exported = a->Do("export block");
    scene.Needs("B imports", b->Do(Concat("import block ", bytes), exported.descriptor.get()));
    scene.Needs("B maps read-only", b->Do("map block r"));
    scene.Expect("B reads", b->Do("compare block 1").value == "0");
    scene.Record("B writes", b->Do("memset block 9").ToString());
    const Answer after = b->Do("sync");
    scene.Record("and synchronises", after.ToString());
    scene.Expect("a write through a read-only map is an error", !after.ok());
  }
  scene.Expect("A lives and its bytes are as they were", a->Do("compare block 1").value == "0");
  const auto c = scene.Start("C");
  const Answer exported = a->Do("export block");
  scene.Needs("C imports", c->Do(Concat("import block ", bytes), exported.descriptor.get()));
  scene.Needs("C maps read-only", c->Do("map block r"));
  scene.Expect("C may ask for more by itself", c->Do("access block rw").ok());
  scene.Needs("C writes", c->Do("memset block 9"));
  scene.Expect("and that works", c->Do("sync").ok());
  scene.Expect("A sees it", a->Do("compare block 1").value == std::to_string(bytes / 8));
}

void Sizes(Scene& scene) {
  const auto a = scene.Start("A");
  const auto refused_with_1 = [&](const std::string& what, const Answer& answer) {
    scene.Expect(Concat(what, " is refused with 1, not ", answer.ToString()), answer.code == 1);
  };
  refused_with_1("a block of 1 byte", a->Do("create odd 1"));
  refused_with_1("granularity and a byte", a->Do(Concat("create odd ", 2 * kMiB + 1)));
  if (!scene.Needs("a block of 4 MiB", a->Do(Concat("create block ", 4 * kMiB)))) return;
  refused_with_1("mapping its second half", a->Do(Concat("map block rw ", 2 * kMiB, " ", 2 * kMiB)));
  refused_with_1("mapping more than it", a->Do(Concat("map block rw ", 8 * kMiB)));
  scene.Record("mapping its first half", a->Do(Concat("map block rw ", 2 * kMiB)).ToString());
  const auto b = scene.Start("B");
  if (!scene.Needs("B's block", b->Do(Concat("create block ", 2 * kMiB))) ||
      !scene.Needs("mapped", b->Do("map block rw")))
    return;
  scene.Record("mapped a second time elsewhere", b->Do("map block rw").ToString());
}

void StaleBytes(Scene& scene) {
  const uint64_t bytes = scene.small() ? 8 * kMiB : 4096 * kMiB;
  const auto fill = [&](const std::string& verb, const std::string& map) {
    const auto a = scene.Start("A");
    if (!scene.Needs(verb, a->Do(Concat(verb, " block ", bytes)))) return;
    if (!map.empty()) scene.Needs(map, a->Do(map));
    scene.Needs("memset", a->Do("memset block 171"));
    scene.Needs("sync", a->Do("sync"));
  };
  const auto look = [&](Peer& b, const std::string& verb, const std::string& map) {
    if (!scene.Needs(verb, b.Do(Concat(verb, " block ", bytes)))) return std::string("none");
    if (!map.empty()) scene.Needs(map, b.Do(map));
    return b.Do("nonzero block").ToString();
  };
  fill("create", "map block rw");
  {
    const auto b = scene.Start("B");
    scene.Record("cuMemCreate after another process: words not 0", look(*b, "create", "map block rw"));
  }
  fill("alloc", "");
  const auto b = scene.Start("B");
  scene.Record("cuMemAlloc after another process: words not 0", look(*b, "alloc", ""));
  scene.Needs("memset", b->Do("memset block 171"));
  scene.Needs("sync", b->Do("sync"));
  scene.Needs("free", b->Do("free block"));
  scene.Record("cuMemAlloc after its own free: words not 0", look(*b, "alloc", ""));
}

void HostBlocks(Scene& scene) {
  const auto a = scene.Start("A");
  const Answer supported = a->Do("read_only_supported");
  scene.Record("attribute 113", supported.value);
  const Answer without = a->Do("host_block read");
  scene.Record("read-only map, registered without the flag", without.ToString());
  scene.Expect("refused without the flag", !without.ok());
  const Answer with = a->Do("host_block readonly");
  scene.Record("with it", with.ToString());
  if (supported.value == "1") scene.Expect("registered with it", with.ok());
  scene.Record("writable, then sealed", a->Do("host_block late").ToString());
}

}  // namespace arraybridge::experiments
