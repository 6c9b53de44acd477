// SPDX-License-Identifier: Apache-2.0
// E1, E2, E9, E26: facts about a driver that one process can find.
#include <cstdlib>

#include "proto/boundary/result.h"
#include "tests/gpu/experiments/experiments.h"

namespace arraybridge::experiments {
namespace {

// "7=3, 10=1, ...": true if attribute `number` has `value`.
bool Has(const std::string& attributes, const std::string& number_and_value) {
  const std::string bounded = ", " + attributes + ",";
  return bounded.find(", " + number_and_value + ",") != std::string::npos;
}

}  // namespace

void Symbols(Scene& scene) {
  const auto a = scene.Start("A", false);
  const Answer found = a->Do("symbols");
  if (!scene.Needs("cuGetProcAddress answers", found)) return;
  scene.Record("symbols", found.value);
  scene.Expect("every required symbol is there", found.value.starts_with("missing: none;"));
  scene.Expect("cuMemAlloc is not cuMemAlloc_v2", found.value.ends_with("is another"));
}

void NoContext(Scene& scene) {
  const auto watcher = scene.Start("B");
  const auto a = scene.Start("A", false);
  const double before = std::atof(watcher->Do("memory").value.c_str());
  scene.Expect("a block is created", a->Do(Concat("create block ", 2 * kMiB)).ok());
  scene.Expect("and exported", a->Do("export block").ok());
  scene.Expect("no primary context was made", a->Do("active").value == "0");
  const double taken = (before - std::atof(watcher->Do("memory").value.c_str())) / static_cast<double>(kMiB);
  scene.Needs("another process creates", watcher->Do(Concat("create theirs ", 2 * kMiB)));
  const Answer theirs = watcher->Do("export theirs");
  scene.Record("imported without a context",
               a->Do(Concat("import theirs ", 2 * kMiB), theirs.descriptor.get()).ToString());
  scene.Record("and mapped", a->Do("map theirs r").ToString());
  scene.Expect("that made no primary context", a->Do("active").value == "0");
  scene.Record("GPU memory taken", Concat(static_cast<int64_t>(taken), " MiB for a block of 2"));
  scene.Expect("less than 10 MiB beside the block", taken < 12);
}

void PointerAttributes(Scene& scene) {
  const auto a = scene.Start("A");
  for (const std::string kind : {"alloc", "vmm", "pool", "registered", "unknown"}) {
    const Answer said = a->Do("attributes " + kind);
    scene.Record(kind, said.ToString());
    if (kind == "alloc") scene.Expect("alloc: legacy only", Has(said.value, "10=1") && Has(said.value, "14=0"));
    if (kind == "vmm") scene.Expect("vmm: descriptors only", Has(said.value, "10=0") && Has(said.value, "14=1"));
  }
  // Of other processes' memory, and in a thread without a context, where Triton #5276 met an error 201.
  const auto b = scene.Start("B");
  if (!scene.Needs("alloc", a->Do(Concat("alloc legacy ", 2 * kMiB))) ||
      !scene.Needs("open", b->Do(Concat("open legacy ", a->Do("handle legacy").value, " ", 2 * kMiB))) ||
      !scene.Needs("create", a->Do(Concat("create vmm ", 2 * kMiB))))
    return;
  const Answer exported = a->Do("export vmm");
  if (!scene.Needs("import", b->Do(Concat("import vmm ", 2 * kMiB), exported.descriptor.get())) ||
      !scene.Needs("map", b->Do("map vmm r")))
    return;
  for (const std::string name : {"legacy", "vmm"}) {
    const Answer said = b->Do("pointer " + name);
    scene.Record(name + " of another process", said.ToString());
    scene.Expect(name + " of another process is a range of its own",
                 said.value.starts_with(Concat("range of ", 2 * kMiB, " from itself,")));
    scene.Record(name + " without a context", b->Do("pointer " + name + " bare").ToString());
  }
}

void Hardening(Scene& scene) {
  for (const std::string setting : {"no_new_privs", "mdwe"}) {
    const auto a = scene.StartUnloaded("A-" + setting);
    if (!a->Do("harden " + setting).ok()) {
      scene.Record(setting, "the kernel does not know it");
      continue;
    }
    const Answer loaded = a->Do("load");
    scene.Record(setting + ": load", loaded.ToString());
    if (!loaded.ok()) continue;
    scene.Record(setting + ": create", a->Do(Concat("create block ", 2 * kMiB)).ToString());
    scene.Record(setting + ": export", a->Do("export block").ToString());
    scene.Record(setting + ": context", a->Do("context").ToString());
  }
}

}  // namespace arraybridge::experiments
