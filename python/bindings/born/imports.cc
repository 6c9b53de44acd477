// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/born/imports.h"

#include <arraybridge/born/imports.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings/born_tally/tally.h"
#include "python/bindings/core.h"
#include "python/bindings/gil.h"

namespace arraybridge::python {

namespace {

namespace py = pybind11;

// One entry of one framework's libraries.
class BornLibraries {
 public:
  BornLibraries(std::shared_ptr<BornHeap> heap, const std::string& framework, std::vector<std::string> libraries,
                uint64_t min_bytes)
      : heap_(heap), imports_(std::move(heap), FrameworkOf(framework), std::move(libraries), min_bytes) {}

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

  py::tuple Counts() const { return CountsOf(imports_.counts(), heap_->refusal().message()); }

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
      [](std::shared_ptr<BornHeap> heap, const std::string& framework, std::vector<std::string> libraries,
         uint64_t min_bytes) {
        return std::make_unique<BornLibraries>(std::move(heap), framework, std::move(libraries), min_bytes);
      },
      arg("heap"), arg("framework"), arg("libraries"), arg("min_bytes"));
}

}  // namespace arraybridge::python
