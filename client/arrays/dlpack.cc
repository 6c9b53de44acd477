// SPDX-License-Identifier: Apache-2.0
// Both dialects of DLPack 1.3. Export writes what the strictest consumer needs. Import checks everything, and
// normalises what producers send: NULL strides, byte offsets, any stride on dimensions of size 1, pinned and managed
// memory.
#include <dlpack/dlpack.h>

#include <algorithm>
#include <cstddef>

#include <arraybridge/view.h>

#include "client/arrays/dlpack_block.h"
#include "client/memory/layout.h"

namespace arraybridge {

static_assert(sizeof(DLPackVersion) == 8 && offsetof(DLPackVersion, minor) == 4);
static_assert(sizeof(DLDevice) == 8 && offsetof(DLDevice, device_id) == 4);
static_assert(sizeof(DLDataType) == 4 && offsetof(DLDataType, bits) == 1 && offsetof(DLDataType, lanes) == 2);
static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, device) == 8 && offsetof(DLTensor, ndim) == 16 &&
              offsetof(DLTensor, dtype) == 20 && offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, strides) == 32 &&
              offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, manager_ctx) == 48 &&
              offsetof(DLManagedTensor, deleter) == 56);
static_assert(sizeof(DLManagedTensorVersioned) == 80 && offsetof(DLManagedTensorVersioned, manager_ctx) == 8 &&
              offsetof(DLManagedTensorVersioned, deleter) == 16 && offsetof(DLManagedTensorVersioned, flags) == 24 &&
              offsetof(DLManagedTensorVersioned, dl_tensor) == 32);
static_assert(sizeof(DLPackExchangeAPIHeader) == 16 && offsetof(DLPackExchangeAPIHeader, prev_api) == 8);
static_assert(sizeof(DLPackExchangeAPI) == 56 && offsetof(DLPackExchangeAPI, managed_tensor_allocator) == 16 &&
              offsetof(DLPackExchangeAPI, managed_tensor_from_py_object_no_sync) == 24 &&
              offsetof(DLPackExchangeAPI, managed_tensor_to_py_object_no_sync) == 32 &&
              offsetof(DLPackExchangeAPI, dltensor_from_py_object_no_sync) == 40 &&
              offsetof(DLPackExchangeAPI, current_work_stream) == 48);
static_assert(kDlpackReadOnly == DLPACK_FLAG_BITMASK_READ_ONLY && kDlpackIsCopied == DLPACK_FLAG_BITMASK_IS_COPIED &&
              kDlpackSubbytePadded == DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);
static_assert(kDeviceCpu == kDLCPU && kDeviceCuda == kDLCUDA);

namespace {

// Most arrays fit into the small block. The large one holds every rank that import accepts.
constexpr size_t kSmallRank = 6;

template <class Tensor, size_t kRank>
Tensor* ExportInto(const View& view) {
  using Pool = BlockPool<Tensor, kRank>;
  auto* block = Pool::Instance().Take();
  std::copy(view.shape.begin(), view.shape.end(), block->shape);
  std::copy(view.strides.begin(), view.strides.end(), block->strides);
  block->owner = view.owner;
  block->copy_on_write = view.copy_on_write;
  block->constant = view.constant;
  block->tensor.manager_ctx = block;
  block->tensor.deleter = &Pool::Delete;
  DLTensor& tensor = block->tensor.dl_tensor;
  tensor.data = view.data;
  tensor.device = {static_cast<DLDeviceType>(view.device.type), view.device.id};
  tensor.ndim = static_cast<int32_t>(view.shape.size());
  tensor.dtype = {view.type.code, view.type.bits, view.type.lanes};
  tensor.shape = block->shape;
  tensor.strides = block->strides;
  tensor.byte_offset = 0;
  return &block->tensor;
}

template <class Tensor>
Tensor* Export(const View& view) {
  AB_CHECK(view.shape.size() <= layout::kRankMax && view.strides.size() == view.shape.size());
  if (view.shape.size() <= kSmallRank) return ExportInto<Tensor, kSmallRank>(view);
  return ExportInto<Tensor, layout::kRankMax>(view);
}

// Maps pinned memory to the CPU and managed memory to CUDA. A host device's id is ignored.
Result<Device> Normalised(DLDevice device) {
  switch (static_cast<int32_t>(device.device_type)) {
    case kDLCPU:
    case kDLCUDAHost:
    case kDLROCMHost:
      return Device{kDeviceCpu, 0, {}};
    case kDLCUDA:
    case kDLCUDAManaged:
      return Device{kDeviceCuda, device.device_id, {}};
    default:
      break;
  }
  return InvalidArgument("memory of DLPack device (", static_cast<int32_t>(device.device_type), ", ", device.device_id,
                         ") cannot be addressed");
}

// Checks a tensor and converts it to a View without an owner.
Result<View> Read(const DLTensor& tensor, bool read_only) {
  AB_ASSIGN_OR_RETURN(auto device, Normalised(tensor.device));
  if (tensor.ndim < 0 || static_cast<size_t>(tensor.ndim) > layout::kRankMax)
    return InvalidArgument("rank ", tensor.ndim, " is not within 0 and ", layout::kRankMax);
  if (tensor.ndim > 0 && tensor.shape == nullptr) return InvalidArgument("rank ", tensor.ndim, " without a shape");
  std::vector<int64_t> shape(tensor.shape, tensor.shape + tensor.ndim);
  std::vector<int64_t> strides;
  if (tensor.strides != nullptr) strides.assign(tensor.strides, tensor.strides + tensor.ndim);
  void* data = tensor.data;
  if (data != nullptr) {
    uintptr_t first = 0;
    if (__builtin_add_overflow(reinterpret_cast<uintptr_t>(data), tensor.byte_offset, &first))
      return InvalidArgument("byte_offset ", tensor.byte_offset, " overflows the address space");
    data = reinterpret_cast<void*>(first);
  }
  return Describe(data, {tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes}, std::move(shape),
                  std::move(strides), std::move(device), read_only, nullptr);
}

// Owns the tensor itself, not only the object that exported it, because a producer may have exported a temporary.
template <class Tensor>
std::shared_ptr<const void> OwnerOf(Tensor* tensor) {
  return std::shared_ptr<Tensor>(tensor, [](Tensor* held) {
    if (held->deleter != nullptr) held->deleter(held);
  });
}

template <class Tensor, size_t kRank>
View ReadBlock(const Tensor& tensor, bool read_only) {
  const auto& block = reinterpret_cast<const Block<Tensor, kRank>&>(tensor);
  const DLTensor& array = tensor.dl_tensor;
  const auto rank = static_cast<size_t>(array.ndim);
  View view;
  view.data = array.data;
  view.type = {array.dtype.code, array.dtype.bits, array.dtype.lanes};
  view.dtype = NameOf(view.type);
  view.shape.assign(block.shape, block.shape + rank);
  view.strides.assign(block.strides, block.strides + rank);
  view.device = {static_cast<int32_t>(array.device.device_type), array.device.device_id, {}};
  view.read_only = read_only;
  view.owner = block.owner;
  view.copy_on_write = block.copy_on_write;
  view.constant = block.constant;
  return view;
}

// Recognises a tensor of our own export, and the type of its block, by its deleter.
template <class Tensor>
std::optional<View> ReadOwn(const Tensor& tensor, bool read_only) {
  if (tensor.deleter == &BlockPool<Tensor, kSmallRank>::Delete) return ReadBlock<Tensor, kSmallRank>(tensor, read_only);
  if (tensor.deleter != &BlockPool<Tensor, layout::kRankMax>::Delete) return std::nullopt;
  return ReadBlock<Tensor, layout::kRankMax>(tensor, read_only);
}

}  // namespace

std::optional<View> ExportedFrom(const DLManagedTensorVersioned& tensor) {
  return ReadOwn(tensor, (tensor.flags & kDlpackReadOnly) != 0);
}

std::optional<View> ExportedFrom(const DLManagedTensor& tensor) { return ReadOwn(tensor, true); }

DLManagedTensorVersioned* ExportVersioned(const View& view, bool is_copied) {
  auto* tensor = Export<DLManagedTensorVersioned>(view);
  tensor->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  tensor->flags = (view.read_only ? kDlpackReadOnly : 0) | (is_copied ? kDlpackIsCopied : 0);
  return tensor;
}

Result<DLManagedTensor*> ExportLegacy(const View& view, bool may_alias_read_only) {
  // No write reaches an array without elements.
  if (view.read_only && !view.legacy_may_alias_read_only && !may_alias_read_only && view.nbytes() != 0)
    return FailedPrecondition(
        "read-only memory cannot be exported without max_version=(1, 0): "
        "an unversioned capsule cannot say that it is read-only");
  return Export<DLManagedTensor>(view);
}

bool IsPlain(const DLManagedTensorVersioned& tensor) {
  const DLTensor& array = tensor.dl_tensor;
  if (tensor.version.major != DLPACK_MAJOR_VERSION || (tensor.flags & ~kDlpackReadOnly) != 0) return false;
  if (tensor.deleter == nullptr || array.device.device_type != kDLCPU || array.device.device_id != 0) return false;
  if (array.data == nullptr || array.byte_offset != 0) return false;
  if (array.ndim < 0 || static_cast<size_t>(array.ndim) > layout::kRankMax) return false;
  if (array.ndim > 0 && (array.shape == nullptr || array.strides == nullptr)) return false;
  const DataType type{array.dtype.code, array.dtype.bits, array.dtype.lanes};
  if (!layout::CheckType(type).ok()) return false;
  uint64_t elements = 1;
  for (int32_t i = array.ndim - 1; i >= 0; --i) {
    if (array.shape[i] <= 0 || array.strides[i] != static_cast<int64_t>(elements)) return false;
    if (__builtin_mul_overflow(elements, static_cast<uint64_t>(array.shape[i]), &elements)) return false;
    if (elements > layout::kBytesMax) return false;
  }
  return layout::CompactBytes(elements, type).ok();
}

Result<View> ImportVersioned(DLManagedTensorVersioned* tensor) {
  if (tensor->version.major != DLPACK_MAJOR_VERSION)  // no field after `flags` may be read
    return InvalidArgument("DLPack version ", tensor->version.major, ".", tensor->version.minor, " is not understood");
  if ((tensor->flags & kDlpackSubbytePadded) != 0 && tensor->dl_tensor.dtype.bits < 8)
    return InvalidArgument("padded elements of ", int{tensor->dl_tensor.dtype.bits}, " bits are not supported");
  auto view = Read(tensor->dl_tensor, (tensor->flags & kDlpackReadOnly) != 0);
  if (!view.ok()) return view;
  view->owner = OwnerOf(tensor);
  return view;
}

Result<View> ImportLegacy(DLManagedTensor* tensor) {
  auto view = Read(tensor->dl_tensor, false);
  if (!view.ok()) return view;
  view->owner = OwnerOf(tensor);
  return view;
}

Result<View> Describe(void* data, DataType type, std::vector<int64_t> shape, std::vector<int64_t> strides,
                      Device device, bool read_only, std::shared_ptr<const void> owner) {
  AB_RETURN_IF_ERROR(layout::CheckType(type));
  AB_ASSIGN_OR_RETURN(const auto elements, layout::Elements(shape));
  AB_RETURN_IF_ERROR(layout::CompactBytes(elements, type).status());
  if (!strides.empty() && strides.size() != shape.size())
    return InvalidArgument(strides.size(), " strides for ", shape.size(), " dimensions");
  if (elements == 0) data = nullptr;
  if (elements > 0 && data == nullptr) return InvalidArgument("data is NULL for ", elements, " elements");

  if (strides.empty()) {
    strides = CompactStrides(shape);
  } else if (layout::IsCompact(shape, strides)) {
    layout::FillCompactStrides(shape, strides);
  } else {
    if (type.bits % 8 != 0) return InvalidArgument("elements of ", int{type.bits}, " bits must be compact");
    const std::vector<int64_t> compact = CompactStrides(shape);
    for (size_t i = 0; i < shape.size(); ++i)
      if (shape[i] == 1) strides[i] = compact[i];
    AB_ASSIGN_OR_RETURN(const auto extent, layout::ExtentOf(shape, strides));
    const int64_t reach_max = static_cast<int64_t>(layout::kBytesMax) / (type.bits / 8);
    if (extent.highest > reach_max || extent.lowest < -reach_max)
      return InvalidArgument("strides reach from element ", extent.lowest, " to ", extent.highest);
  }
  View view;
  view.data = data;
  view.type = type;
  view.dtype = NameOf(type);
  view.shape = std::move(shape);
  view.strides = std::move(strides);
  view.device = std::move(device);
  view.read_only = read_only;
  view.owner = std::move(owner);
  return view;
}

}  // namespace arraybridge
