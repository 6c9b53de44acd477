// SPDX-License-Identifier: Apache-2.0
// A descriptor is checked before it is mapped: if its file could shrink, later reads could raise SIGBUS; if others
// could write it, an immutable array could change. The producer's own descriptor has no seals yet: the broker seals the
// file after the producer has mapped it, because a sealed file cannot be mapped writable.
#include "client/memory/host/host_mapper.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "client/memory/cuda/cuda_copy.h"
#include "client/memory/cuda/cuda_pin.h"
#include "client/pages/page_scan.h"
#include "proto/boundary/explained_error.h"
#include "proto/boundary/huge_pages.h"

namespace arraybridge {
namespace {

// Fault-around maps 16 pages on a read fault, and on a shared mapping maps them writable; a write fault maps one page.
constexpr uint64_t kTouchStep = 64 * 1024;

class HostMapping final : public Mapping {
 public:
  // `base` and `length` are the mapping; the requested range begins `skip` bytes after `base`. `reader`, if any, is a
  // descriptor of the file, used to map it read-only.
  HostMapping(void* base, uint64_t length, uint64_t skip, uint64_t size, UniqueFd reader = {})
      : base_(base), length_(length), skip_(skip), size_(size), reader_(std::move(reader)) {}
  ~HostMapping() override {
    if (pin_ == nullptr) {
      ::munmap(base_, length_);
    } else if (!idle_) {
      CudaPin::ReleaseAfterWork(pin_);
    }
  }

  std::byte* data() const override { return static_cast<std::byte*>(base_) + skip_; }
  uint64_t size() const override { return size_; }

  Status CopyFrom(const View& source, uint64_t offset) override {
    AB_RETURN_IF_ERROR(CheckFits(source, offset));
    if (source.device.type != kDeviceCpu) return CopyOverDevice(source, data() + offset, Device{});
    CopyCompact(source, data() + offset);
    return Ok();
  }
  Status Pin() override {
    AB_ASSIGN_OR_RETURN(pin_, CudaPin::Of(base_, length_));
    return Ok();
  }
  std::shared_ptr<DeviceEvent> Now() override { return pin_ == nullptr ? nullptr : pin_->Now(); }
  void NoteIdle() override { idle_ = true; }

  void Detach() noexcept override {
    constexpr int kInPlace = MAP_FIXED | MAP_PRIVATE | MAP_NORESERVE;
    void* const base =
        reader_.valid() ? ::mmap(base_, length_, PROT_READ | PROT_WRITE, kInPlace, reader_.get(), 0) : MAP_FAILED;
    if (base == MAP_FAILED) ::mprotect(base_, length_, PROT_READ);
    reader_.reset();
  }

 private:
  void* base_;
  uint64_t length_;
  uint64_t skip_;
  uint64_t size_;
  UniqueFd reader_;
  std::shared_ptr<const CudaPin> pin_;  // owns the mapping, if there is one
  bool idle_ = false;
};

Status CheckFile(const Handle& handle) {
  if (handle.kind != HandleKind::kMemfd) return Unimplemented("the handle is not of kind memfd");
  if (!handle.descriptor.valid()) return FailedPrecondition("arena ", handle.arena, " came without a descriptor");
  if (handle.arena_size == 0) return FailedPrecondition("arena ", handle.arena, " has no bytes");
  struct stat file {};
  if (::fstat(handle.descriptor.get(), &file) != 0 || !S_ISREG(file.st_mode)) {
    return FailedPrecondition("the descriptor of arena ", handle.arena, " is not shared memory");
  }
  if (file.st_size < 0 || static_cast<uint64_t>(file.st_size) < handle.arena_size) {
    return FailedPrecondition("arena ", handle.arena, " has ", file.st_size, " bytes, its handle says ",
                              handle.arena_size);
  }
  return Ok();
}

Status CheckWritable(const Handle& handle) {
  AB_RETURN_IF_ERROR(CheckFile(handle));
  const int flags = ::fcntl(handle.descriptor.get(), F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) != O_RDWR) {
    return FailedPrecondition("the descriptor of arena ", handle.arena, " is not writable");
  }
  return Ok();
}

Status CheckReadable(const Handle& handle) {
  AB_RETURN_IF_ERROR(CheckFile(handle));
  const int flags = ::fcntl(handle.descriptor.get(), F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY || (flags & O_PATH) != 0) {
    return FailedPrecondition("the descriptor of arena ", handle.arena, " is not readable");
  }
  const int seals = ::fcntl(handle.descriptor.get(), F_GET_SEALS);
  constexpr int kNoResize = F_SEAL_GROW | F_SEAL_SHRINK;
  if (seals < 0 || (seals & kNoResize) != kNoResize) {
    return FailedPrecondition("arena ", handle.arena, " is not sealed against resizing");
  }
  if ((seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) == 0) {
    return FailedPrecondition("arena ", handle.arena, " is not sealed against writing");
  }
  return Ok();
}

Status MapFailed(uint64_t bytes) {
  const int error = errno;
  return ResourceExhausted("mapping ", bytes, " bytes of shared memory: ", ExplainedError(error, "this process"));
}

// The broker has populated the pages; this maps them in this process, at a seventh of the cost of write faults.
void Touch(const std::byte* data, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += kTouchStep)
    static_cast<void>(static_cast<const volatile std::byte*>(data)[at]);
}

// A producer's own descriptor must be closed before the broker seals; a read-only one may stay open. Invalid if the
// kernel does not show descriptors (no /proc): then a forked child can only read.
UniqueFd Reader(const Handle& handle) {
  const std::string path = "/proc/self/fd/" + std::to_string(handle.descriptor.get());
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

class HostMapper final : public MemoryMapper {
 public:
  HandleKind kind() const override { return HandleKind::kMemfd; }
  Result<Device> Local(const Device& device) const override {
    AB_RETURN_IF_ERROR(CheckDevice(device));
    return Device{};
  }

  Result<std::unique_ptr<Mapping>> Map(const Handle& handle, const Device& device, Access access) override {
    AB_RETURN_IF_ERROR(CheckDevice(device));
    AB_RETURN_IF_ERROR(access == Access::kWrite ? CheckWritable(handle) : CheckReadable(handle));
    const int protection = access == Access::kWrite ? PROT_READ | PROT_WRITE : PROT_READ;
    void* base = MapFile(handle.arena_size, protection, MAP_SHARED, handle.descriptor.get());
    if (base == MAP_FAILED) return MapFailed(handle.arena_size);
    auto mapping = std::make_unique<HostMapping>(base, handle.arena_size, 0, handle.arena_size,
                                                 access == Access::kWrite ? Reader(handle) : UniqueFd());
    // Fails if the kernel disables huge pages for shared memory; then ordinary pages serve.
    ::madvise(base, handle.arena_size, MADV_HUGEPAGE);
    if (access == Access::kWrite) Touch(mapping->data(), handle.arena_size);
    return std::unique_ptr<Mapping>(std::move(mapping));
  }

  Result<std::unique_ptr<Mapping>> MapPrivate(const Handle& arena, uint64_t offset, uint64_t size) override {
    if (size == 0 || offset > arena.arena_size || size > arena.arena_size - offset) {
      return InvalidArgument(size, " bytes at offset ", offset, " are not inside an arena of ", arena.arena_size);
    }
    const uint64_t skip = offset % PageBytes();
    const uint64_t length = skip + size;
    // Neither populated nor reserved, because few readers write.
    void* base =
        MapFile(length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, arena.descriptor.get(), offset - skip);
    if (base == MAP_FAILED) return MapFailed(length);
    return std::unique_ptr<Mapping>(std::make_unique<HostMapping>(base, length, skip, size));
  }

 private:
  static Status CheckDevice(const Device& device) {
    if (device.type == kDeviceCpu) return Ok();
    return Unimplemented("device type ", device.type, " is not host memory");
  }
};

}  // namespace

std::unique_ptr<MemoryMapper> MakeHostMapper() { return std::make_unique<HostMapper>(); }

}  // namespace arraybridge
