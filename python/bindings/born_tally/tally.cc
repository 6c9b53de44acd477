// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/born_tally/tally.h"

#include <map>
#include <utility>

#include <arraybridge/born/heap.h>
#include <pybind11/stl.h>

#include "python/bindings/core.h"
#include "python/bindings/gil.h"

namespace arraybridge::python {

namespace py = pybind11;

namespace {

using Missed = std::map<std::string, std::pair<uint32_t, uint64_t>>;  // arrays and bytes, by the reason

bool Tell(const py::object& core, const std::string& framework, uint64_t arrays, uint64_t nbytes,
          const Missed& missed) {
  born::Figures more{.arrays = arrays};
  more.bytes[FrameworkOf(framework)] = nbytes;
  for (const auto& [reason, numbers] : missed) {
    const auto place = born::PlaceOf(born::kReasons, reason);
    if (place) more.missed[*place] += numbers.first;
    more.missed_bytes += numbers.second;
  }
  Broker& broker = BrokerOf(core.ptr());
  return WithoutGil([&] { return BornHeap::Tell(broker, more); });
}

}  // namespace

size_t FrameworkOf(const std::string& name) {
  const auto place = born::PlaceOf(born::kFrameworks, name);
  if (!place) throw py::value_error("no arrays are born of '" + name + "'");
  return *place;
}

py::tuple CountsOf(const BornTally::Counts& counts, const std::string& refusal) {
  py::dict missed;
  for (size_t i = 0; i < kBornMisses; ++i) {
    if (counts.missed[i] == 0) continue;
    missed[py::str(born::kReasons[i].data(), born::kReasons[i].size())] =
        py::make_tuple(counts.missed[i], counts.missed_bytes[i]);
  }
  return py::make_tuple(counts.arrays, counts.bytes, missed, refusal);
}

void AddBornTally(py::module_& module) {
  using py::arg;
  module.def("tell_born", &Tell, arg("core"), arg("framework"), arg("arrays"), arg("nbytes"), arg("missed"));
}

}  // namespace arraybridge::python
