// SPDX-License-Identifier: Apache-2.0
// E19, E24: durations.
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>

#include "proto/boundary/result.h"
#include "tests/gpu/experiments/experiments.h"
#include "tests/gpu/experiments/record.h"

namespace arraybridge::experiments {
namespace {

constexpr std::chrono::seconds kDeath(8);  // at most, for each part of it

// The time until `fd` has `events`.
std::string Until(Scene& scene, int fd, short events, std::chrono::steady_clock::time_point begun) {
  pollfd wanted{fd, events, 0};
  if (::poll(&wanted, 1, static_cast<int>(scene.Takes(kDeath).count())) <= 0) return "never";
  return Concat(static_cast<uint64_t>(MicrosecondsSince(begun)), " us");
}

}  // namespace

void CostTable(Scene& scene) {
  const int runs = scene.small() ? 5 : 100;
  const auto a = scene.Start("A");
  const auto b = scene.Start("B");
  std::vector<uint64_t> sizes{2 * kMiB, 64 * kMiB, 1024 * kMiB, 8192 * kMiB};
  if (scene.small()) sizes = {2 * kMiB, 4 * kMiB};
  for (const uint64_t bytes : sizes) {
    const std::string size = Concat(bytes / kMiB, " MiB: ");
    scene.Needs(size + "owner", a->Do(Concat("costs_owner ", bytes, " ", runs)));
    if (scene.Needs(size + "create", a->Do(Concat("create block ", bytes)))) {
      const Answer exported = a->Do("export block");
      scene.Needs(size + "borrower",
                  b->Do(Concat("costs_borrower block ", bytes, " ", runs), exported.descriptor.get()));
      scene.Needs(size + "release", a->Do("release block"));
    }
    if (!scene.Needs(size + "alloc", a->Do(Concat("alloc legacy ", bytes)))) continue;
    scene.Needs(size + "legacy", b->Do(Concat("costs_legacy ", a->Do("handle legacy").value, " ", bytes, " ", runs)));
    scene.Needs(size + "free", a->Do("free legacy"));
    if (bytes <= 1024 * kMiB) scene.Needs(size + "copies", a->Do(Concat("costs_copies ", bytes, " ", runs)));
  }
  scene.Needs("events", a->Do(Concat("costs_events ", runs)));
  scene.Record("figures", "the lines with p50_us and p99_us");
}

void OrderOfDeath(Scene& scene) {
  const uint64_t bytes = scene.small() ? 4 * kMiB : 8192 * kMiB;
  const auto watcher = scene.Start("W");
  const uint64_t before = std::stoull(watcher->Do("memory").value);
  auto a = scene.Start("A");
  if (!scene.Needs("scratch", a->Do(Concat("create scratch ", bytes))) || !scene.Needs("map", a->Do("map scratch rw")))
    return;
  scene.Record("A's work", a->Do(Concat("busy scratch ", scene.Takes(std::chrono::seconds(5)).count())).ToString());
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, a->id(), 0)));
  const auto begun = std::chrono::steady_clock::now();
  a->Kill();
  scene.Record("end of its socket", Until(scene, a->socket(), POLLIN, begun));
  scene.Record("pidfd readable", process.valid() ? Until(scene, process.get(), POLLIN, begun) : "no pidfd");
  uint64_t taken = bytes;
  const auto ends = std::chrono::steady_clock::now() + scene.Takes(kDeath);
  while (taken >= bytes && std::chrono::steady_clock::now() < ends) {
    const uint64_t now = std::stoull(watcher->Do("memory").value);
    taken = now < before ? before - now : 0;
  }
  scene.Record("its memory free",
               taken < bytes ? Concat(static_cast<uint64_t>(MicrosecondsSince(begun)), " us") : "not within 8 s");
}

}  // namespace arraybridge::experiments
