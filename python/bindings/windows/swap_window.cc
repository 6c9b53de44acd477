// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/windows/swap_window.h"

#include <arraybridge/swap_window.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "python/bindings/core.h"
#include "python/bindings/gil.h"

namespace arraybridge::python {

namespace py = pybind11;

namespace {

void Check(const Status& status) {
  if (status.ok()) return;
  RaiseStatus(status);
  throw py::error_already_set();
}

std::shared_ptr<SwapWindow> WindowOf(const Bundle& first) {
  auto made = WithoutGil([&first] { return SwapWindow::Of(first); });
  Check(made.status());
  return *std::move(made);
}

bool Prepare(SwapWindow& window, const Bundle& next) {
  const auto how = WithoutGil([&] { return window.Prepare(next); });
  Check(how.status());
  return *how == SwapWindow::How::kMapped;
}

}  // namespace

void AddSwapWindow(py::module_& module) {
  using py::arg;
  py::class_<SwapWindow, std::shared_ptr<SwapWindow>>(module, "SwapWindow", py::is_final())
      .def(py::init(&WindowOf), arg("first"))
      .def("over", &SwapWindow::Over, arg("bundle"))
      .def("contains", &SwapWindow::Contains, arg("address"))
      .def(
          "check_layout",
          [](const SwapWindow&, const Bundle& live, const Bundle& next) {
            Check(WithoutGil([&] { return SwapWindow::CheckLayout(live, next); }));
          },
          arg("live"), arg("next"))
      .def("prepare", &Prepare, arg("next"))
      // Keeps the GIL: to take it again beside busy threads lasts longer than the swap.
      .def("swap",
           [](SwapWindow& window) {
             Check(window.IsOnGpu() ? WithoutGil([&window] { return window.Swap(); }) : window.Swap());
           })
      .def("clean", [](SwapWindow& window) { Check(WithoutGil([&window] { return window.Clean(); })); });
}

}  // namespace arraybridge::python
