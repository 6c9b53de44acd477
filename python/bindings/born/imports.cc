// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/born/imports.h"

#include <arraybridge/born/imports.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings/core.h"
#include "python/bindings/gil.h"

namespace arraybridge::python {

namespace {

namespace py = pybind11;

constexpr const char* kLackNames[BornImports::kLacks] = {"none", "no_room", "refused", "child"};

// One entry of one framework's libraries.
class BornLibraries {
 public:
  BornLibraries(std::shared_ptr<BornHeap> heap, std::vector<std::string> libraries, uint64_t min_bytes)
      : heap_(heap), imports_(std::move(heap), std::move(libraries), min_bytes) {}

  // Why the framework's arrays are its own; "" if they are not.
  std::string Enter() {
    const Status opened = WithoutGil([this] { return heap_->Open(); });
    if (!opened.ok()) {
      RaiseStatus(opened);
      throw py::error_already_set();
    }
    const Status entered = imports_.Enter();
    if (entered.ok()) return {};
    heap_->Close();
    return entered.message();
  }

  void Leave() {
    imports_.Leave();
    heap_->Close();
  }

  py::tuple Counts() const {
    const BornImports::Counts counts = imports_.counts();
    py::dict missed;
    for (size_t i = 0; i < BornImports::kLacks; ++i) {
      if (counts.missed[i] > 0) missed[kLackNames[i]] = py::make_tuple(counts.missed[i], counts.missed_bytes[i]);
    }
    return py::make_tuple(counts.blocks, counts.bytes, missed, heap_->refusal().message());
  }

 private:
  const std::shared_ptr<BornHeap> heap_;
  BornImports imports_;
};

}  // namespace

void AddBornImports(py::module_& module) {
  using py::arg;
  py::class_<BornLibraries>(py::handle(), "BornLibraries", py::is_final())
      .def("enter", &BornLibraries::Enter)
      .def("leave", &BornLibraries::Leave)
      .def("counts", &BornLibraries::Counts);
  module.def(
      "born_imports",
      [](std::shared_ptr<BornHeap> heap, std::vector<std::string> libraries, uint64_t min_bytes) {
        return std::make_unique<BornLibraries>(std::move(heap), std::move(libraries), min_bytes);
      },
      arg("heap"), arg("libraries"), arg("min_bytes"));
}

}  // namespace arraybridge::python
