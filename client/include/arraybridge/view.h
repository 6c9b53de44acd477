// SPDX-License-Identifier: Apache-2.0
// A View is an array in memory as frameworks see it: address, type, shape, strides, device, and the owner that keeps
// the memory alive. The memory may be a share or foreign. Immutable; a copy shares the owner.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <arraybridge/array_spec.h>

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace arraybridge {

class FenceEvent;  // client/memory/fence_event.h

struct View {
  void* data = nullptr;  // address of the first element; nullptr iff the array has no elements
  DataType type;
  std::string dtype;  // logical name, may be empty
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements, as long as shape; compact values on dimensions of size 1
  Device device;                 // pinned memory is CPU, managed memory is CUDA
  // On a GPU: the stream on which the work that produces these bytes is queued. DLPack's numbers: 1 is the legacy
  // default, 2 the default of the thread that uses the view, any other a pointer. Absent: the bytes are complete.
  std::optional<uintptr_t> stream{};
  // True if the producer also queues later changes of these bytes on `stream`, so that a copy queued there now still
  // reads the present bytes. False: a copy must be complete before the caller continues.
  bool stream_is_producers = false;
  // Set for a share on a GPU that was published before its bytes were complete: WaitForProducer and OrderAfterProducer
  // (device.h) wait for it, and copies do so by themselves. Null: the bytes are complete.
  std::shared_ptr<const FenceEvent> fence{};
  bool read_only = false;
  // True if the consumer's arrays are immutable (JAX, TensorFlow): they may alias read-only memory through the
  // unversioned dialect, which has no read-only flag.
  bool legacy_may_alias_read_only = false;
  // True if no process writes these bytes any more.
  bool constant = false;
  // True: read-only bytes are exported through DLPack as copy-on-write, so that a write does not reach them, because
  // most consumers ignore READ_ONLY. False: they are exported as they are, for a consumer that respects the flag.
  bool guarded = false;
  // Returns the same bytes in a new copy-on-write mapping, as a writable View; set for shares in host memory that are
  // mapped read-only. RESOURCE_EXHAUSTED: no room for a mapping. Null for all other memory.
  Result<View> (*copy_on_write)(const View& view) = nullptr;
  std::shared_ptr<const void> owner;  // destroyed on any thread, without locks, possibly after the interpreter

  uint64_t elements() const;
  uint64_t nbytes() const;
  bool compact() const;
};

// DLPack 1.3's flags: https://dmlc.github.io/dlpack/latest/c_api.html
inline constexpr uint64_t kDlpackReadOnly = 1;
inline constexpr uint64_t kDlpackIsCopied = 2;
inline constexpr uint64_t kDlpackSubbytePadded = 4;

// Exports the view. The caller owns the tensor until its deleter is called. The deleter may be called on any thread and
// more than once; later calls do nothing. Never NULL; byte_offset is 0; strides are never NULL for ndim > 0; data is
// NULL at size 0. `is_copied`: DLPack's IS_COPIED. REQUIRES then: `view` is the only reference to memory made for this
// consumer.
DLManagedTensorVersioned* ExportVersioned(const View& view, bool is_copied = false);
// FAILED_PRECONDITION for a read-only view, unless legacy_may_alias_read_only or `may_alias_read_only` is set: the
// dialect has no read-only flag.
Result<DLManagedTensor*> ExportLegacy(const View& view, bool may_alias_read_only = false);

// True if the tensor describes compact host memory exactly as ExportVersioned would, so that a consumer can use it as
// it is. False also for tensors without elements.
bool IsPlain(const DLManagedTensorVersioned& tensor);

// Takes ownership of the tensor on success only; the view's owner calls the deleter. INVALID_ARGUMENT names the refused
// value: rank, lanes, dtype, negative size, overflow, NULL data, foreign major version. Does not copy.
Result<View> ImportVersioned(DLManagedTensorVersioned* tensor);
Result<View> ImportLegacy(DLManagedTensor* tensor);

// Returns the View that one of the two exports above exported; nothing if another producer made the tensor. The View
// keeps the same memory as the tensor. REQUIRES: the tensor's deleter was not called.
std::optional<View> ExportedFrom(const DLManagedTensorVersioned& tensor);
std::optional<View> ExportedFrom(const DLManagedTensor& tensor);

// Returns a checked and normalised View of memory that is described in other terms (buffer protocol, array interface).
// Strides are in elements and may be empty. INVALID_ARGUMENT as above.
Result<View> Describe(void* data, DataType type, std::vector<int64_t> shape, std::vector<int64_t> strides,
                      Device device, bool read_only, std::shared_ptr<const void> owner);

// True if every element of `inner` is an element of `outer`, which is compact. False if either has no elements.
bool LiesIn(const View& inner, const View& outer);

// Copies every element of `source` (any strides) to `destination`, compact and row-major; host memory only.
// REQUIRES: destination holds source.nbytes() bytes and does not overlap it.
void CopyCompact(const View& source, void* destination);

// Returns a private, writable, compact, 256-byte aligned copy in this process's own host memory, also of memory on a
// GPU. RESOURCE_EXHAUSTED; for a GPU also the errors of Broker::Place.
Result<View> CopyToHeap(const View& source);

}  // namespace arraybridge
