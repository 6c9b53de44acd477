// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/tiers/tiers.h"

#include <arraybridge/tiers/tiers.h>

#include <chrono>
#include <string>
#include <utility>

#include "python/bindings/core.h"
#include "python/bindings/gil.h"

namespace arraybridge::python {

namespace py = pybind11;

namespace {

// Longer than any move takes.
constexpr std::chrono::milliseconds kLongest = std::chrono::hours(1);

py::tuple Tier(const py::object& core, int action, const std::string& name, uint64_t generation,
               const py::object& timeout, std::pair<int, int> rank) {
  Broker& broker = BrokerOf(core.ptr());
  const auto wait = TimeoutOf(timeout.ptr()).value_or(kLongest);
  const ShareRef ref{.name = name, .generation = generation};
  const TierRank its{static_cast<TierPin>(rank.first), rank.second};
  const auto answered =
      WithoutGil([&] { return TierCalls::Ask(broker, static_cast<TierAction>(action), ref, wait, its); });
  if (!answered.ok()) {
    RaiseStatus(answered.status());
    throw py::error_already_set();
  }
  py::list shares;
  for (const TieredShare& share : answered->shares) {
    shares.append(
        py::make_tuple(share.name, share.generation, share.bytes, share.in_memory, share.durable, share.lost));
  }
  return py::make_tuple(shares, answered->disk_bytes, answered->disk_bytes_max, answered->off);
}

}  // namespace

void AddTiers(py::module_& module) {
  using py::arg;
  module.def("tier", &Tier, arg("core"), arg("action"), arg("name"), arg("generation"), arg("timeout_s"),
             arg("rank") = std::pair(0, 0));
}

}  // namespace arraybridge::python
