// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/device_blocks/torch_blocks.h"

#include <arraybridge/device.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <exception>
#include <unordered_map>
#include <utility>

#include <arraybridge/device_blocks/device_block.h>
#include "python/bindings/core.h"

namespace arraybridge::python {

namespace py = pybind11;

namespace {

// PyTorch rounds the segment of a large tensor up to a multiple of this. Smaller tensors share a segment of one or of
// ten times this size.
constexpr uint64_t kSegmentStep = 2 << 20;

// A tensor of so many bytes has the segment for itself.
uint64_t WholeFrom(uint64_t segment) { return std::max(segment / 2, segment - std::min(segment, kSegmentStep)) + 1; }

// The innermost of this thread.
thread_local TorchBlocks* t_current = nullptr;

// The segments that PyTorch has. They outlive the block of code and the Broker that they were taken for.
struct Segments {
  static Segments& Get() {
    static auto* const segments = new Segments;  // never destroyed: PyTorch may free while the process ends
    return *segments;
  }

  Mutex mutex;
  std::unordered_map<uintptr_t, DeviceBlock> blocks AB_GUARDED_BY(mutex);  // by address
};

// The signatures are those of torch.cuda.memory.CUDAPluggableAllocator.
void* Allocate(ssize_t bytes, int device, void* /*stream*/) {
  return t_current == nullptr || bytes <= 0 ? nullptr : t_current->Allocate(static_cast<uint64_t>(bytes), device);
}

void Free(void* address, size_t /*bytes*/, int /*device*/, void* /*stream*/) {
  Segments& segments = Segments::Get();
  decltype(segments.blocks)::node_type freed;  // destroyed without the lock
  const MutexLock lock(segments.mutex);
  freed = segments.blocks.extract(std::bit_cast<uintptr_t>(address));
}

}  // namespace

void TorchBlocks::Enter(py::object core) {
  broker_ = &BrokerOf(core.ptr());
  core_ = std::move(core);
  before_ = std::exchange(t_current, this);
}

void TorchBlocks::Leave() {
  t_current = std::exchange(before_, nullptr);
  broker_ = nullptr;
  core_ = {};
}

py::tuple TorchBlocks::Counts() const {
  const MutexLock lock(mutex_);
  return py::make_tuple(numbers_.blocks, numbers_.bytes, numbers_.refused, numbers_.refused_bytes, numbers_.refusal);
}

void* TorchBlocks::Allocate(uint64_t bytes, int32_t ordinal) noexcept {
  try {
    const DeviceBlock::Wish wish{.device = {kDeviceCuda, ordinal, {}},
                                 .bytes = bytes,
                                 .whole_from = WholeFrom(bytes),
                                 .kept = kept_,
                                 .timeout = {}};
    auto block = DeviceBlock::Of(*broker_, wish);
    if (!block.ok()) {
      const MutexLock lock(mutex_);
      ++numbers_.refused;
      numbers_.refused_bytes += bytes;
      numbers_.refusal = block.status().message();
      return nullptr;
    }
    std::byte* const data = block->data();
    Segments& segments = Segments::Get();
    {
      const MutexLock lock(segments.mutex);
      segments.blocks.emplace(std::bit_cast<uintptr_t>(data), *std::move(block));
    }
    const MutexLock lock(mutex_);
    ++numbers_.blocks;
    numbers_.bytes += bytes;
    return data;
  } catch (const std::exception&) {  // no host memory is left
    return nullptr;
  }
}

// The classes have no names in the module: only the function makes their objects.
void AddTorchBlocks(py::module_& module) {
  using py::arg;
  py::class_<TorchBlocks>(py::handle(), "TorchBlocks", py::is_final())
      .def("enter", &TorchBlocks::Enter, arg("core"))
      .def("leave", &TorchBlocks::Leave)
      .def("counts", &TorchBlocks::Counts);
  py::class_<KeptArrays, std::shared_ptr<KeptArrays>>(py::handle(), "TorchMemory", py::is_final())
      .def("blocks", [](std::shared_ptr<KeptArrays> kept) { return std::make_unique<TorchBlocks>(std::move(kept)); })
      .def("sweep", &KeptArrays::Sweep, py::call_guard<py::gil_scoped_release>())
      .def("__len__", &KeptArrays::count)
      .def_property_readonly("functions", [](const KeptArrays&) {
        return py::make_tuple(std::bit_cast<uintptr_t>(&Allocate), std::bit_cast<uintptr_t>(&Free));
      });
  module.def("torch_memory", [] { return std::make_shared<KeptArrays>(); });
}

}  // namespace arraybridge::python
