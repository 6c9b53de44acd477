// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/one_memory/one_memory.h"

#include <arraybridge/one_memory/one_memory.h>

#include <bit>
#include <cstdint>
#include <utility>

#include "python/bindings/core.h"
#include "python/bindings/gil.h"
#include "python/bindings/view.h"

namespace arraybridge::python {

namespace py = pybind11;

namespace {

// The value of a call, which is made without the GIL; its error becomes Python's.
template <class Function>
auto Taken(Function call) {
  auto result = WithoutGil(call);
  if (!result.ok()) {
    RaiseStatus(result.status());
    throw py::error_already_set();
  }
  return *std::move(result);
}

py::object ObjectOf(View view) {
  auto object = py::reinterpret_steal<py::object>(NewView(std::move(view)));
  if (!object) throw py::error_already_set();
  return object;
}

const View& ViewIn(const py::object& object) {
  const View* const view = ViewOf(object.ptr());
  if (view == nullptr) throw py::error_already_set();
  return *view;
}

py::tuple ReachOf(int32_t ordinal) {
  const HostReach reach = Taken([ordinal] { return HostReachOf(ordinal); });
  const char* kind = reach.kind == HostReach::Kind::kNone ? "none" : "mapped";
  if (reach.kind == HostReach::Kind::kOneMemory) kind = "one_memory";
  return py::make_tuple(kind, reach.why);
}

}  // namespace

void AddOneMemory(py::module_& module) {
  using py::arg;
  module.def("host_reach", &ReachOf, arg("ordinal"));
  module.def(
      "on_gpu",
      [](const py::object& share, int32_t ordinal) {
        const View& view = ViewIn(share);
        return ObjectOf(Taken([&] { return GpuViewOf(view, ordinal); }));
      },
      arg("share"), arg("ordinal"));
  module.def(
      "is_shown_by_gpus", [](const py::object& share) { return IsShownByGpus(ViewIn(share)); }, arg("share"));
  module.def(
      "on_host",
      [](const py::object& array) -> py::object {
        const View& view = ViewIn(array);
        auto shown = Taken([&] { return HostViewOf(view); });
        return shown.has_value() ? ObjectOf(*std::move(shown)) : py::none();
      },
      arg("array"));
  module.def(
      "lies_on_host",
      [](uintptr_t address, int32_t ordinal) {
        return WithoutGil([=] { return LiesOnHost(std::bit_cast<void*>(address), ordinal); });
      },
      arg("address"), arg("ordinal"));
  module.def("registrations", &RegistrationsLiving);
}

}  // namespace arraybridge::python
