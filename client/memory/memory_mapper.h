// SPDX-License-Identifier: Apache-2.0
// A MemoryMapper maps memory of the broker into this process; a Mapping is such mapped memory. The daemon allocates and
// exports (daemon/memory/memory_backend.h), the client imports and maps: each kind of handle has one such pair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <arraybridge/view.h>

#include "client/process/device_event.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Its destructor unmaps after the work that this process has queued on it has ended.
class Mapping {
 public:
  virtual ~Mapping() = default;

  // Address of the first requested byte; a device address on devices.
  virtual std::byte* data() const = 0;
  virtual uint64_t size() const = 0;
  // Copies every element of `source`, on any device, to `offset`, compact and row-major, in the order of its producer's
  // stream. The copy is complete on return. INVALID_ARGUMENT: it does not fit. REQUIRES: mapped for writing.
  virtual Status CopyFrom(const View& source, uint64_t offset) = 0;
  // As CopyFrom, but where a device can copy later, the copy is only queued on the source's stream. Then returns true,
  // and the source must live until the stream has executed it. False: the copy is complete.
  virtual Result<bool> QueueCopyFrom(const View& source, uint64_t offset) {
    AB_RETURN_IF_ERROR(CopyFrom(source, offset));
    return false;
  }
  // Registers host memory with the CUDA driver, so that copies between it and GPUs are asynchronous. UNIMPLEMENTED: it
  // is memory of a GPU. UNAVAILABLE: no driver, or no GPU. REQUIRES: called once, directly after it was mapped for
  // writing.
  virtual Status Pin() { return Unimplemented("memory of a GPU cannot be pinned"); }
  // The end of all work that this process has queued on these bytes so far, or of more work. Null for host memory that
  // is not pinned: no work is queued.
  virtual std::shared_ptr<DeviceEvent> Now() = 0;
  // Waits for that. UNAVAILABLE: a graph is being captured.
  Status Drain() {
    const auto event = Now();
    return event == nullptr ? Ok() : event->Wait();
  }
  // Tells that no work on these bytes is left, so that the destructor need not wait.
  virtual void NoteIdle() {}
  // Called in a forked child directly after fork: from now on its writes do not reach the parent's memory.
  virtual void Detach() noexcept = 0;

 protected:
  Status CheckFits(const View& source, uint64_t offset) const {
    const uint64_t bytes = source.nbytes();
    if (offset <= size() && bytes <= size() - offset) return Ok();
    return InvalidArgument(bytes, " bytes at offset ", offset, " do not fit into a mapping of ", size());
  }
};

class MemoryMapper {
 public:
  virtual ~MemoryMapper() = default;

  // The kind of handles that it maps.
  virtual HandleKind kind() const = 0;
  // The device with its ordinal in this process. UNIMPLEMENTED: this mapper does not serve it. FAILED_PRECONDITION: not
  // visible here. UNAVAILABLE: no driver.
  virtual Result<Device> Local(const Device& device) const = 0;
  // Maps the whole arena. The caller keeps the handle; the mapping does not need its descriptor. FAILED_PRECONDITION:
  // the memory differs from its handle, or is not sealed as a reader requires.
  virtual Result<std::unique_ptr<Mapping>> Map(const Handle& handle, const Device& device, Access access) = 0;
  // Maps [offset, offset + size) of an arena copy-on-write: a write stays in this process. UNIMPLEMENTED: the device
  // does not support it. REQUIRES: this very handle was mapped for reading before; its memory is not checked again.
  virtual Result<std::unique_ptr<Mapping>> MapPrivate(const Handle& arena, uint64_t offset, uint64_t size) = 0;
};

}  // namespace arraybridge
