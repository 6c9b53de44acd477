// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/born/born.h"

#include <arraybridge/born/heap.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <utility>

#include "python/bindings/born/imports.h"
#include "python/bindings/born/numpy_api.h"
#include "python/bindings/born/numpy_everywhere.h"
#include "python/bindings/born/numpy_scope.h"
#include "python/bindings/born_tally/tally.h"
#include "python/bindings/core.h"
#include "python/bindings/gil.h"

namespace arraybridge::python {

namespace {

namespace py = pybind11;
using SharedScope = std::shared_ptr<NumpyScope>;

void FreeScope(PyObject* capsule) { delete static_cast<SharedScope*>(PyCapsule_GetContext(capsule)); }

// NumPy's arrays keep the capsule, and so the scope.
py::object CapsuleOf(const SharedScope& scope) {
  auto kept = std::make_unique<SharedScope>(scope);
  auto capsule = py::reinterpret_steal<py::object>(PyCapsule_New(&scope->handler(), kNumpyHandlerCapsule, FreeScope));
  if (!capsule || PyCapsule_SetContext(capsule.ptr(), kept.get()) != 0) throw py::error_already_set();
  static_cast<void>(kept.release());
  return capsule;
}

// One entry into a scope, of one context.
class BornNumpy {
 public:
  BornNumpy(std::shared_ptr<BornHeap> heap, uint64_t min_bytes, bool everywhere)
      : scope_(std::make_shared<NumpyScope>(std::move(heap), min_bytes, NumpyEverywhere::Own())),
        everywhere_(everywhere) {
    static_cast<void>(NumpyMemory::Get());
  }

  void Enter() {
    const py::object capsule = CapsuleOf(scope_);
    const Status opened = WithoutGil([this] { return scope_->heap().Open(); });
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    if (!opened.ok()) {
      RaiseStatus(opened);
      throw py::error_already_set();
    }
    if (everywhere_) return NumpyEverywhere::Enter(scope_);
    before_ = py::reinterpret_steal<py::object>(NumpyMemory::Get().SetHandler(capsule.ptr()));
    if (!before_) throw py::error_already_set();
  }

  void Leave() {
    if (everywhere_) {
      NumpyEverywhere::Leave(*scope_);
    } else {
      const py::object before = std::move(before_);
      const auto own = py::reinterpret_steal<py::object>(NumpyMemory::Get().SetHandler(before.ptr()));
      if (!own) throw py::error_already_set();
    }
    scope_->heap().Close();
  }

  py::tuple Counts() const { return CountsOf(scope_->counts(), scope_->heap().refusal().message()); }

 private:
  const SharedScope scope_;
  const bool everywhere_;
  py::object before_;
};

}  // namespace

// The classes have no names in the module: only these functions make their objects.
void AddBorn(py::module_& module) {
  using py::arg;
  const py::class_<BornHeap, std::shared_ptr<BornHeap>> heap(py::handle(), "BornHeap", py::is_final());
  py::class_<BornNumpy>(py::handle(), "BornNumpy", py::is_final())
      .def("enter", &BornNumpy::Enter)
      .def("leave", &BornNumpy::Leave)
      .def("counts", &BornNumpy::Counts);
  module.def(
      "born_heap",
      [](const py::object& core, uint64_t reserve_bytes) {
        return BornHeap::Of(BrokerOf(core.ptr()), {.reserve_bytes = reserve_bytes});
      },
      arg("core"), arg("reserve_bytes"));
  module.def(
      "born_numpy",
      [](std::shared_ptr<BornHeap> heap, uint64_t min_bytes, bool everywhere) {
        return std::make_unique<BornNumpy>(std::move(heap), min_bytes, everywhere);
      },
      arg("heap"), arg("min_bytes"), arg("everywhere"));
  AddBornImports(module);
  AddBornTally(module);
}

}  // namespace arraybridge::python
