// A View is what frameworks see of memory: an address, how to read it, and what keeps it alive. Of a share of the
// broker or of foreign memory; it does not know which. Immutable once made; copying shares the owner.
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

class FenceEvent;  // client/fence_event.h

struct View {
  void* data = nullptr;  // of the first element; nullptr iff the array has no elements
  DataType type;
  std::string dtype;  // logical name, may be empty
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // elements; as long as shape; compact values on dimensions of size 1
  Device device;                 // pinned memory shows as CPU, managed as CUDA
  // On a GPU: where the work that makes these bytes is queued, in DLPack's numbers (1 legacy default, 2 per-thread
  // default, else a pointer). Absent: they are final.
  std::optional<uintptr_t> stream{};
  // What the producer does to these bytes next is queued on `stream` too, so a copy that is queued there now still
  // reads them. Else a copy is done before anybody is told so.
  bool stream_is_producers = false;
  // Of a share on a GPU that was published before its bytes were there: WaitForProducer and OrderAfterProducer
  // (device.h) wait for it, copies do by themselves. Null: they are there.
  std::shared_ptr<const FenceEvent> fence{};
  bool read_only = false;
  // The consumer's arrays are immutable (JAX, TensorFlow): it may alias read-only memory through the unversioned
  // dialect, which cannot say so.
  bool legacy_may_alias_read_only = false;
  // No process writes these bytes any more.
  bool constant = false;
  // Read-only bytes leave through DLPack in a form in which a write does not reach them: most consumers ignore
  // READ_ONLY. False: they leave as they are, for a consumer that is known.
  bool guarded = false;
  // Of a share in host memory, mapped read-only: the same bytes in a copy-on-write mapping that nothing else uses, as a
  // writable View. RESOURCE_EXHAUSTED: no room for a mapping. Null: of all other memory.
  Result<View> (*copy_on_write)(const View& view) = nullptr;
  std::shared_ptr<const void> owner;  // dropped on any thread, without any lock, maybe after the interpreter has gone

  uint64_t elements() const;
  uint64_t nbytes() const;
  bool compact() const;
};

// DLPack 1.3's flags: https://dmlc.github.io/dlpack/latest/c_api.html
inline constexpr uint64_t kDlpackReadOnly = 1;
inline constexpr uint64_t kDlpackIsCopied = 2;
inline constexpr uint64_t kDlpackSubbytePadded = 4;

// The tensor is the caller's until its deleter is called, which may happen on any thread, any number of times: the
// second call finds nothing to do. Never NULL, byte_offset 0, strides never NULL for ndim > 0, data NULL at size 0.
// `is_copied`: DLPack's IS_COPIED. REQUIRES: the consumer gets the view's only copy, made for it alone.
DLManagedTensorVersioned* ExportVersioned(const View& view, bool is_copied = false);
// FAILED_PRECONDITION for a read-only view, unless legacy_may_alias_read_only, or `may_alias_read_only` here: the
// dialect cannot say read-only.
Result<DLManagedTensor*> ExportLegacy(const View& view, bool may_alias_read_only = false);

// Whether the tensor says of compact host memory what ExportVersioned would say: a consumer may have it as it is. False
// also of tensors without elements.
bool IsPlain(const DLManagedTensorVersioned& tensor);

// Takes the tensor over on success only; the view's owner calls its deleter. INVALID_ARGUMENT names the value that is
// refused: rank, lanes, dtype, negative size, overflow, NULL data, foreign major version. Nothing is copied.
Result<View> ImportVersioned(DLManagedTensorVersioned* tensor);
Result<View> ImportLegacy(DLManagedTensor* tensor);

// The View that one of the two exports above was made of; nothing if the tensor is another producer's. It keeps what
// the tensor keeps. REQUIRES: the tensor's deleter was not called.
std::optional<View> ExportedFrom(const DLManagedTensorVersioned& tensor);
std::optional<View> ExportedFrom(const DLManagedTensor& tensor);

// A description, checked and normalised, of memory that somebody describes in other words (buffer, array interface).
// strides in elements, may be empty. INVALID_ARGUMENT as above.
Result<View> Describe(void* data, DataType type, std::vector<int64_t> shape, std::vector<int64_t> strides,
                      Device device, bool read_only, std::shared_ptr<const void> owner);

// Whether every element of `inner` lies among those of `outer`, which is compact; false where one has none.
bool LiesIn(const View& inner, const View& outer);

// Copies every element of `source` (any strides) to `destination`, compact row-major; host memory only.
// REQUIRES: destination holds source.nbytes() bytes and does not overlap it.
void CopyCompact(const View& source, void* destination);

// A private, writable, compact, 256-byte aligned copy in this process's own host memory (no broker), also of what lies
// on a GPU. RESOURCE_EXHAUSTED; of a GPU's errors, those of Broker::Place.
Result<View> CopyToHeap(const View& source);

}  // namespace arraybridge
