// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/bundle.h"

#include <arraybridge/bundle.h>
#include <pybind11/stl.h>

#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "python/bindings/core.h"
#include "python/bindings/gil.h"
#include "python/bindings/python_owner.h"
#include "python/bindings/view.h"

namespace arraybridge::python {

namespace py = pybind11;

namespace {

template <class Value>
Value ValueOf(Result<Value> result) {
  if (result.ok()) return *std::move(result);
  RaiseStatus(result.status());
  throw py::error_already_set();
}

py::tuple TupleOf(Bundle::Array array) {
  return py::make_tuple(std::move(array.name), static_cast<int>(array.kind), array.tie,
                        Own(NewView(std::move(array.view))));
}

py::list NamesOf(const Bundle& bundle) {
  py::list names(bundle.size());
  for (uint64_t i = 0; i < bundle.size(); ++i) names[i] = py::str(ValueOf(bundle.NameAt(i)));
  return names;
}

py::list ArraysOf(const Bundle& bundle, uint64_t first, uint64_t count) {
  py::list arrays(count);
  for (uint64_t i = 0; i < count; ++i) arrays[i] = TupleOf(ValueOf(bundle.At(first + i)));
  return arrays;
}

using Wanted = std::tuple<std::string, std::tuple<uint8_t, uint8_t, uint16_t>, std::vector<int64_t>, int, std::string>;

BundlePlan PlanOf(const std::vector<Wanted>& wanted, const std::string& fingerprint, const std::string& metadata) {
  std::vector<BundleArray> arrays;
  arrays.reserve(wanted.size());
  for (const auto& [name, code, shape, kind, tie] : wanted) {
    const DataType type{std::get<0>(code), std::get<1>(code), std::get<2>(code)};
    arrays.push_back({name, type, shape, ArrayKind{static_cast<uint8_t>(kind)}, tie});
  }
  return ValueOf(BundlePlan::For(arrays, fingerprint, metadata));
}

py::list SpecsOf(const BundlePlan& plan) {
  py::list specs;
  for (const ArraySpec& spec : plan.specs()) {
    const auto code = py::make_tuple(int{spec.type.code}, int{spec.type.bits}, int{spec.type.lanes});
    specs.append(py::make_tuple(spec.dtype, code, py::tuple(py::cast(spec.shape))));
  }
  return specs;
}

}  // namespace

void AddBundle(py::module_& module) {
  using py::arg;
  py::class_<Bundle>(module, "Bundle", py::is_final())
      .def(py::init([](const py::sequence& objects) {
             // The manifest is copied, on a GPU after the work of its producer.
             return ValueOf(WithoutGil([views = ViewsOf(objects)]() mutable { return Bundle::Of(std::move(views)); }));
           }),
           arg("views"))
      .def("__len__", &Bundle::size)
      .def_property_readonly("fingerprint", [](const Bundle& bundle) { return py::bytes(bundle.fingerprint()); })
      .def_property_readonly("metadata_bytes", &Bundle::metadata_bytes)
      .def_property_readonly("metadata", [](const Bundle& bundle) { return py::bytes(bundle.metadata()); })
      .def(
          "find", [](const Bundle& bundle, const std::string& name) { return ValueOf(bundle.Find(name)); }, arg("name"))
      .def("names", &NamesOf)
      .def(
          "array", [](const Bundle& bundle, uint64_t index) { return TupleOf(ValueOf(bundle.At(index))); },
          arg("index"))
      .def("arrays", &ArraysOf, arg("first"), arg("count"))
      // Another mapping of the same bytes, which this process may write without changing the share.
      .def("copy_on_write", [](const Bundle& bundle) -> std::optional<Bundle> {
        const View& slab = bundle.views()[1];
        if (slab.copy_on_write == nullptr || slab.elements() == 0) return std::nullopt;
        auto own = OwnMapping(slab);
        if (!own) throw py::error_already_set();
        return bundle.Over(*std::move(own));
      });
  py::class_<BundlePlan>(module, "BundlePlan", py::is_final())
      .def(py::init(&PlanOf), arg("arrays"), arg("fingerprint"), arg("metadata"))
      .def("specs", &SpecsOf)
      .def(
          "write_to",
          [](const BundlePlan& plan, const Placement& placement) {
            return ValueOf(WithoutGil([&] { return plan.WriteTo(placement); }));
          },
          arg("placement"));
  module.attr("BUNDLE_STRUCTURE") = py::bytes(Bundle::kStructure.data(), Bundle::kStructure.size());
}

}  // namespace arraybridge::python
