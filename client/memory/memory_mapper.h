// A MemoryMapper maps memory that the broker owns into this process; a Mapping is such memory, mapped. The owner
// creates and exports (daemon/memory/memory_backend.h), the borrower imports and maps: each kind of sharing is such a
// pair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <arraybridge/view.h>

#include "client/memory/moment.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Destroying it unmaps, once what this process has queued on it has ended.
class Mapping {
 public:
  virtual ~Mapping() = default;

  // Of the first byte that was asked for; a device address on devices.
  virtual std::byte* data() const = 0;
  virtual uint64_t size() const = 0;
  // Copies every element of `source`, wherever it lies, to `offset` bytes from the first, compact row-major, in the
  // order of its producer's stream; the bytes are there when it returns. INVALID_ARGUMENT: it does not fit.
  // REQUIRES: mapped for writing.
  virtual Status CopyFrom(const View& source, uint64_t offset) = 0;
  // As CopyFrom, but where a device can do it later, it is only queued on the source's stream: then true, and the
  // source must live until that came so far. False: the bytes are there.
  virtual Result<bool> QueueCopyFrom(const View& source, uint64_t offset) {
    AB_RETURN_IF_ERROR(CopyFrom(source, offset));
    return false;
  }
  // The work that this process has queued on these bytes so far, or more than that. Null for host memory: none.
  virtual std::shared_ptr<Moment> Now() = 0;
  // Waits for that. UNAVAILABLE: a graph is being captured.
  Status Drain() {
    const auto moment = Now();
    return moment == nullptr ? Ok() : moment->Wait();
  }
  // The caller knows that no work on these bytes is left: whoever destroys it next need not ask.
  virtual void NoteIdle() {}
  // A forked child must not write into what its parent produces: from now on what it writes stays with it. Called
  // between fork and anything else.
  virtual void Detach() noexcept = 0;

 protected:
  Status CheckRoom(const View& source, uint64_t offset) const {
    const uint64_t bytes = source.nbytes();
    if (offset <= size() && bytes <= size() - offset) return Ok();
    return InvalidArgument(bytes, " bytes at offset ", offset, " do not fit into a mapping of ", size());
  }
};

class MemoryMapper {
 public:
  virtual ~MemoryMapper() = default;

  // What it maps.
  virtual HandleKind kind() const = 0;
  // The device as this process numbers it. UNIMPLEMENTED: no device of this mapper. FAILED_PRECONDITION: not visible
  // here. UNAVAILABLE: no driver.
  virtual Result<Device> Local(const Device& device) const = 0;
  // The whole arena. The handle stays the caller's; its descriptor is not needed by the mapping.
  // FAILED_PRECONDITION: the memory is not what the handle says, or not sealed as a reader must insist on.
  virtual Result<std::unique_ptr<Mapping>> Map(const Handle& handle, const Device& device, Access access) = 0;
  // Copy-on-write, of [offset, offset + size) of an arena alone: a write stays in this process. UNIMPLEMENTED where the
  // device cannot. REQUIRES: this very handle was mapped for reading before; its memory is not checked again.
  virtual Result<std::unique_ptr<Mapping>> MapPrivate(const Handle& arena, uint64_t offset, uint64_t size) = 0;
};

}  // namespace arraybridge
