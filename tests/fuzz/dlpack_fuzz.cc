// SPDX-License-Identifier: Apache-2.0
// Tensors of a hostile producer: any DLPack struct is imported, checked and exported again, or refused with a reason.
// Its deleter runs exactly once, or never if the tensor was refused.
#include <dlpack/dlpack.h>

#include <string>
#include <vector>

#include <arraybridge/view.h>

#include "tests/fuzz/input.h"

namespace arraybridge {
namespace {

constexpr size_t kRankMost = 80;  // more than any consumer accepts
constexpr uint64_t kCopyBytesMost = 1 << 16;

alignas(256) char memory[kCopyBytesMost];

// A tensor of a producer, which counts the calls of its deleter.
struct Producer {
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  int deleted = 0;
};

template <class Tensor>
void Delete(Tensor* tensor) {
  ++static_cast<Producer*>(tensor->manager_ctx)->deleted;
}

int64_t TakeSize(Input& input) {
  const auto small = input.Take<int8_t>();
  return small == -128 ? input.Take<int64_t>() : small;
}

void Fill(Input& input, Producer& producer, DLTensor& tensor) {
  const auto rank = input.Take<uint8_t>();
  tensor.ndim = rank > 250 ? input.Take<int32_t>() : rank % 8;
  const size_t sizes = tensor.ndim < 0 ? 0 : std::min<size_t>(static_cast<size_t>(tensor.ndim), kRankMost);
  for (size_t i = 0; i < sizes; ++i) producer.shape.push_back(TakeSize(input));
  const auto options = input.Take<uint8_t>();
  if ((options & 1) != 0)
    for (size_t i = 0; i < sizes; ++i) producer.strides.push_back(TakeSize(input));
  tensor.shape = sizes == 0 ? nullptr : producer.shape.data();
  tensor.strides = producer.strides.empty() ? nullptr : producer.strides.data();
  tensor.data = (options & 2) != 0 ? nullptr : memory;
  tensor.dtype = {input.Take<uint8_t>(), input.Take<uint8_t>(), input.Take<uint16_t>()};
  tensor.device = {static_cast<DLDeviceType>(input.Take<uint8_t>()), input.Take<int32_t>()};
  tensor.byte_offset = (options & 4) != 0 ? input.Take<uint64_t>() : 0;
}

// Checks an accepted view: its numbers are consistent, and it can be exported in both forms.
void Question(const View& view) {
  AB_CHECK(view.strides.size() == view.shape.size());
  AB_CHECK((view.data == nullptr) == (view.elements() == 0));
  DLManagedTensorVersioned* again = ExportVersioned(view);
  AB_CHECK(again->dl_tensor.byte_offset == 0 && again->dl_tensor.ndim == static_cast<int32_t>(view.shape.size()));
  const auto back = ImportVersioned(again);
  AB_CHECK(back.ok() && back->shape == view.shape && back->strides == view.strides && back->data == view.data);
  const auto legacy = ExportLegacy(view);
  AB_CHECK(legacy.ok() == (!view.read_only || view.legacy_may_alias_read_only));
  if (legacy.ok()) (*legacy)->deleter(*legacy);
  // Only a compact view of our own memory may be read.
  if (view.device.type != kDeviceCpu || !view.compact() || view.data != memory || view.nbytes() > kCopyBytesMost)
    return;
  std::string copy(view.nbytes(), '\0');
  CopyCompact(view, copy.data());
}

template <class Tensor, class Import>
void Hand(Producer& producer, Tensor& tensor, Import import) {
  tensor.manager_ctx = &producer;
  tensor.deleter = &Delete<Tensor>;
  bool taken = false;
  {
    const auto view = import(&tensor);
    taken = view.ok();
    if (taken) Question(*view);
  }
  AB_CHECK(producer.deleted == (taken ? 1 : 0));
}

}  // namespace
}  // namespace arraybridge

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arraybridge;
  Input input(data, size);
  Producer producer;
  if ((input.Take<uint8_t>() & 1) != 0) {
    DLManagedTensor tensor{};
    Fill(input, producer, tensor.dl_tensor);
    // A rank larger than the array of sizes is undefined behaviour for every consumer, because no check can detect it.
    if (tensor.dl_tensor.ndim > static_cast<int32_t>(kRankMost)) producer.shape.resize(kRankMost);
    Hand(producer, tensor, [](DLManagedTensor* given) { return ImportLegacy(given); });
    return 0;
  }
  DLManagedTensorVersioned tensor{};
  const auto version = input.Take<uint8_t>();
  tensor.version = {version > 250 ? input.Take<uint32_t>() : DLPACK_MAJOR_VERSION, version};
  tensor.flags = input.Take<uint8_t>();
  Fill(input, producer, tensor.dl_tensor);
  Hand(producer, tensor, [](DLManagedTensorVersioned* given) { return ImportVersioned(given); });
  return 0;
}
