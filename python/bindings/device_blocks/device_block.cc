// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/device_blocks/device_block.h"

#include <arraybridge/device.h>

#include <bit>
#include <cstdint>
#include <utility>

#include <arraybridge/device_blocks/device_block.h>
#include "python/bindings/core.h"
#include "python/bindings/device_blocks/torch_blocks.h"
#include "python/bindings/gil.h"

namespace arraybridge::python {

namespace py = pybind11;

namespace {

DeviceBlock BlockOf(const py::object& core, uint64_t nbytes, int32_t ordinal, const py::object& timeout_s) {
  Broker& broker = BrokerOf(core.ptr());
  const DeviceBlock::Wish wish{.device = {kDeviceCuda, ordinal, {}},
                               .bytes = nbytes,
                               .whole_from = nbytes,
                               .kept = nullptr,
                               .timeout = TimeoutOf(timeout_s.ptr())};
  auto block = WithoutGil([&] { return DeviceBlock::Of(broker, wish); });
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  if (!block.ok()) {
    RaiseStatus(block.status());
    throw py::error_already_set();
  }
  return *std::move(block);
}

}  // namespace

// DeviceBlock has no name in the module: only the function makes its objects.
void AddDeviceBlocks(py::module_& module) {
  using py::arg;
  py::class_<DeviceBlock>(py::handle(), "DeviceBlock", py::is_final())
      .def_property_readonly("address", [](const DeviceBlock& block) { return std::bit_cast<uintptr_t>(block.data()); })
      .def_property_readonly("nbytes", &DeviceBlock::size)
      .def_property_readonly("unshared", &DeviceBlock::is_unshared);
  module.def("device_block", &BlockOf, arg("core"), arg("nbytes"), arg("ordinal"), arg("timeout_s"));
  AddTorchBlocks(module);
}

}  // namespace arraybridge::python
