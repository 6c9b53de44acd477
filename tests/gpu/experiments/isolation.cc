// SPDX-License-Identifier: Apache-2.0
// E10, E11, E15, E22, E25, E30: effects of namespaces, users and masks.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "proto/boundary/result.h"
#include "tests/gpu/experiments/experiments.h"

namespace arraybridge::experiments {
namespace {

using Command = std::vector<std::string>;

// B reads A's block by both mechanisms.
void Both(Scene& scene, const std::string& what, Peer& a, Peer& b, bool vmm_must) {
  constexpr uint64_t bytes = 2 * kMiB;
  if (scene.Needs(what + ": A creates", a.Do(Concat("create vmm ", bytes)))) {
    scene.Needs(what + ": A maps", a.Do("map vmm rw"));
    scene.Needs(what + ": A fills", a.Do("fill vmm 5"));
    const Answer exported = a.Do("export vmm");
    const Answer imported = b.Do(Concat("import vmm ", bytes), exported.descriptor.get());
    std::string said = imported.ToString();
    if (imported.ok())
      said = "maps " + b.Do("map vmm r").ToString() + ", differing " + b.Do("compare vmm 5").ToString();
    scene.Record(what + ": descriptor", said);
    if (vmm_must) scene.Expect(what + ": the descriptor works", said == "maps 0, differing 0: 0");
  }
  if (!scene.Needs(what + ": A allocates", a.Do(Concat("alloc legacy ", bytes)))) return;
  scene.Needs(what + ": A fills", a.Do("fill legacy 6"));
  const Answer opened = b.Do(Concat("open legacy ", a.Do("handle legacy").value, " ", bytes));
  scene.Record(what + ": cudaIpcMemHandle",
               opened.ok() ? "differing " + b.Do("compare legacy 6").ToString() : Concat("error ", opened.code));
}

// True if a command that runs another one works here.
bool Works(const Command& under) {
  std::string line;
  for (const std::string& word : under) line += " '" + word + "'";
  return std::system((line + " true >/dev/null 2>&1").c_str()) == 0;
}

// In a PID namespace of its own; with `later`, not as its first process.
Command OwnPids(bool later) {
  Command words{"unshare", "--pid", "--fork", "--kill-child"};
  if (later) words.insert(words.end(), {"sh", "-c", "true & true & wait; \"$@\"; exit", "sh"});
  return words;
}

}  // namespace

void PidNamespaces(Scene& scene) {
  if (!Works(OwnPids(false))) return scene.CannotRun("no right to make PID namespaces");
  const auto a = scene.Start("A", true, OwnPids(false));
  {
    const auto b = scene.Start("B", true, OwnPids(true));
    Both(scene, "different pid values", *a, *b, true);
  }
  const auto b = scene.Start("C", true, OwnPids(false));
  Both(scene, "equal pid values", *a, *b, true);
}

void PrivateShm(Scene& scene) {
  const Command apart{"unshare", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /dev/shm && exec \"$@\"", "sh"};
  if (!Works(apart)) return scene.CannotRun("no right to make mount namespaces");
  const auto a = scene.Start("A");
  if (!scene.Needs("an event", a->Do("event made"))) return;
  const Answer handle = a->Do("event_handle made");
  scene.Needs("recorded", a->Do("record made"));
  {
    const auto b = scene.Start("B");
    scene.Expect("one /dev/shm: it opens", b->Do("open_event opened " + handle.value).ok());
  }
  const auto b = scene.Start("C", true, apart);
  const Answer opened = b->Do("open_event opened " + handle.value);
  scene.Record("another /dev/shm: opened", opened.ToString());
  if (opened.ok())
    scene.Record("and awaited",
                 b->Do(Concat("await opened ", scene.Takes(std::chrono::seconds(2)).count())).ToString());
}

void OtherUsers(Scene& scene) {
  const auto as = [](const std::string& uid) {
    return Command{"setpriv", "--reuid=" + uid, "--regid=" + uid, "--clear-groups"};
  };
  Command reads_this = as("1000");
  reads_this.insert(reads_this.end(), {"test", "-x"});
  char own[4096] = {};
  if (::readlink("/proc/self/exe", own, sizeof own - 1) < 0) return scene.CannotRun("no /proc");
  reads_this.emplace_back(own);
  std::string line;
  for (const std::string& word : reads_this) line += " '" + word + "'";
  if (::geteuid() != 0 || std::system((line + " 2>/dev/null").c_str()) != 0) {
    return scene.CannotRun("not root, or other users cannot execute this program");
  }
  const auto a = scene.Start("A", true, as("1000"));
  const auto b = scene.Start("B", true, as("1001"));
  Both(scene, "uid 1000 to 1001", *a, *b, true);
  scene.Needs("an event", a->Do("event made"));
  const Answer handle = a->Do("event_handle made");
  scene.Needs("recorded", a->Do("record made"));
  const Answer opened = b->Do("open_event opened " + handle.value);
  scene.Record("uid 1000 to 1001: event", opened.ToString());
  if (!opened.ok()) return;
  scene.Record("B's stream waits for it", b->Do("wait opened").ToString());
  scene.Record("and is synchronised, 3 s at most", scene.Within(*b, "sync", std::chrono::seconds(3)).ToString());
}

void MaskedDevices(Scene& scene) {
  const auto a = scene.Start("A");
  if (std::atoi(a->Do("devices").value.c_str()) < 2) return scene.CannotRun("one GPU");
  const char* const simulated = std::getenv("SIMULATED_CUDA");
  const auto b = scene.Start("B", true, {},
                             {simulated == nullptr ? std::string("CUDA_VISIBLE_DEVICES=1")
                                                   : Concat("SIMULATED_CUDA=", simulated, ";visible=1")});
  Both(scene, "GPU 0 to a process that sees GPU 1 alone", *a, *b, false);
}

void HiddenDevices(Scene& scene) {
  const char* const simulated = std::getenv("SIMULATED_CUDA");
  for (const std::string value : {"", "-1", "7"}) {
    // The simulated driver has a setting of its own, where an ordinal that does not exist is a mistake.
    const std::string mask =
        simulated == nullptr ? "CUDA_VISIBLE_DEVICES=" + value : Concat("SIMULATED_CUDA=", simulated, ";visible=");
    const auto a = scene.StartUnloaded("A", {mask});
    const Answer loaded = a->Do("load");
    scene.Expect(Concat("with '", value, "' cuInit finds no device: ", loaded.ToString()),
                 loaded.value.find("CUDA_ERROR_NO_DEVICE") != std::string::npos);
  }
}

void OtherTenants(Scene& scene) {
  scene.CannotRun("MPS and MIG are settings of the machine, which a test leaves alone");
}

}  // namespace arraybridge::experiments
