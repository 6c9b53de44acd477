// SPDX-License-Identifier: Apache-2.0
#include "daemon/memory/host/host_backend.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "daemon/memory/capacity.h"
#include "daemon/memory/host/memfd.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/pages/huge_page_size.h"

namespace arraybridge::daemon {
namespace {

constexpr int kContractSeals = F_SEAL_FUTURE_WRITE;  // in addition to the resizing seals that CreateMemfd adds
constexpr int kFinalSeals = F_SEAL_WRITE | F_SEAL_SEAL;

// Thread-safe: readers are exported while a worker seals.
class HostBlock final : public MemoryBlock {
 public:
  HostBlock(Reservation reservation, uint64_t size, UniqueFd keep, UniqueFd sealer,
            std::optional<Immutability> sealed = {})
      : reservation_(std::move(reservation)),
        size_(size),
        keep_(std::move(keep)),
        sealer_(std::move(sealer)),
        sealed_(sealed) {}

  uint64_t size() const override { return size_; }
  Result<Handle> Export(Access access) const override;
  Result<Immutability> Seal() override;
  bool HeldElsewhere() const override;
  int descriptor() const override { return keep_.get(); }
  std::optional<Immutability> sealed() const override {
    const MutexLock lock(mutex_);
    return sealed_;
  }

 private:
  Result<UniqueFd> OpenFor(Access access) const;
  Status OpenSealer() AB_REQUIRES(mutex_);

  const Reservation reservation_;  // first, hence destroyed last: capacity is free only after the bytes are
  const uint64_t size_;
  const UniqueFd keep_;  // O_RDONLY; HeldElsewhere asks the kernel through it
  mutable Mutex mutex_;
  // O_RDWR. HeldElsewhere closes it, because the kernel would count it; OpenSealer then reopens keep_ for the next
  // seal.
  mutable UniqueFd sealer_ AB_GUARDED_BY(mutex_);
  std::optional<Immutability> sealed_ AB_GUARDED_BY(mutex_);
};

Result<UniqueFd> HostBlock::OpenFor(Access access) const {
  // O_NONBLOCK: the broker must not wait when a borrower holds a kernel lease on the file.
  if (access == Access::kRead) return ReopenMemfd(keep_.get(), O_RDONLY | O_NONBLOCK);
  const MutexLock lock(mutex_);
  if (sealed_.has_value()) return FailedPrecondition("the arena is sealed: it can no longer be mapped writable");
  return ReopenMemfd(keep_.get(), O_RDWR | O_NONBLOCK);
}

Result<Handle> HostBlock::Export(Access access) const {
  AB_ASSIGN_OR_RETURN(auto descriptor, OpenFor(access));
  Handle handle;
  handle.kind = HandleKind::kMemfd;
  handle.descriptor = std::move(descriptor);
  handle.size = size_;
  handle.arena_size = size_;
  handle.device = Device{kDeviceCpu, 0, {}};
  return handle;
}

Status HostBlock::OpenSealer() {
  if (sealer_.valid()) return Ok();
  AB_ASSIGN_OR_RETURN(sealer_, ReopenMemfd(keep_.get(), O_RDWR | O_NONBLOCK));
  return Ok();
}

Result<Immutability> HostBlock::Seal() {
  const MutexLock lock(mutex_);
  if (sealed_ == Immutability::kEnforced) return Immutability::kEnforced;
  if (Status opened = OpenSealer(); !opened.ok()) {
    // Another process's lease on the file prevents a writable open. The state stays as it is; a later call may get
    // further.
    return sealed_.has_value() ? Result<Immutability>(*sealed_) : opened;
  }
  if (!sealed_.has_value()) {
    const int error = AddMemfdSeals(sealer_.get(), kContractSeals);
    if (error != 0) return FailedPrecondition("the arena cannot be sealed: ", std::strerror(error));
    if (HasMemfdHoles(sealer_.get(), size_)) {  // checked after the seal, which prevents new holes
      return FailedPrecondition("it has holes: its client released pages, or the kernel populated none");
    }
    return sealed_.emplace(Immutability::kByContract);
  }
  // EBUSY while a writable mapping exists, including one in a forked child of the producer, or while a page is pinned,
  // as by a reader's GPU driver. Any other error is permanent.
  const int error = AddMemfdSeals(sealer_.get(), kFinalSeals);
  if (error == EBUSY) return Immutability::kByContract;
  if (error != 0) return FailedPrecondition("the arena cannot be sealed permanently: ", std::strerror(error));
  sealer_.reset();
  return sealed_.emplace(Immutability::kEnforced);
}

bool HostBlock::HeldElsewhere() const {
  const MutexLock lock(mutex_);
  sealer_.reset();
  return !HasMemfdAlone(keep_.get());
}

class HostBackend final : public MemoryBackend {
 public:
  explicit HostBackend(const HostBackendOptions& options)
      : capacity_(std::make_shared<Capacity>("host memory", options.capacity_bytes)),
        huge_pages_(options.huge_pages ? MemfdHugePages() : MemfdPages::kSmall),
        page_(static_cast<uint64_t>(::sysconf(_SC_PAGESIZE))) {}

  HandleKind kind() const override { return HandleKind::kMemfd; }
  std::vector<Device> devices() const override { return {Device{kDeviceCpu, 0, {}}}; }
  uint64_t Footprint(const Device& device, uint64_t size) const override;
  Result<std::unique_ptr<MemoryBlock>> Allocate(const Device& device, uint64_t size) override {
    return AllocateWithProgress(device, size, {});
  }
  Result<std::unique_ptr<MemoryBlock>> AllocateWithProgress(const Device& device, uint64_t size,
                                                            const Progress& progress) override;
  Result<std::unique_ptr<MemoryBlock>> Adopt(const Device& device, uint64_t size, UniqueFd descriptor) override;
  Usage usage(const Device&) const override { return {capacity_->bytes(), capacity_->used(), 0}; }
  uint64_t Trim() override { return 0; }

 private:
  // A block smaller than a huge page would waste most of it.
  MemfdPages PagesOf(uint64_t size) const { return size >= HugePageBytes() ? huge_pages_ : MemfdPages::kSmall; }

  const std::shared_ptr<Capacity> capacity_;
  const MemfdPages huge_pages_;
  const uint64_t page_;
};

uint64_t HostBackend::Footprint(const Device&, uint64_t size) const {
  // With kAdvised the last page of a file is a huge page too; with kCollapsed it stays small.
  const uint64_t unit = PagesOf(size) == MemfdPages::kAdvised ? HugePageBytes() : page_;
  if (size > UINT64_MAX - (unit - 1)) return 0;
  return (size + unit - 1) / unit * unit;
}

Result<std::unique_ptr<MemoryBlock>> HostBackend::AllocateWithProgress(const Device& device, uint64_t size,
                                                                       const Progress& progress) {
  const uint64_t footprint = Footprint(device, size);
  if (footprint == 0) return InvalidArgument("host memory: a block of ", size, " bytes is not possible");
  AB_RETURN_IF_ERROR(capacity_->Reserve(footprint));
  Reservation reservation(capacity_, footprint);

  AB_ASSIGN_OR_RETURN(auto original, CreateMemfd(footprint));
  AB_RETURN_IF_ERROR(PopulateMemfd(original.get(), footprint, PagesOf(size), progress));
  AB_ASSIGN_OR_RETURN(auto keep, ReopenMemfd(original.get(), O_RDONLY));
  AB_ASSIGN_OR_RETURN(auto sealer, ReopenMemfd(original.get(), O_RDWR));
  // The original description is closed here, so that every remaining description has a known purpose.
  return std::unique_ptr<MemoryBlock>(
      std::make_unique<HostBlock>(std::move(reservation), footprint, std::move(keep), std::move(sealer)));
}

// The seals of the file say how far its block was sealed.
Result<std::unique_ptr<MemoryBlock>> HostBackend::Adopt(const Device&, uint64_t size, UniqueFd descriptor) {
  AB_RETURN_IF_ERROR(CheckStoredMemfd(descriptor.get(), size, "host memory"));
  const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
  AB_RETURN_IF_ERROR(capacity_->Reserve(size));
  Reservation reservation(capacity_, size);
  std::optional<Immutability> sealed;
  if ((seals & kContractSeals) != 0) sealed = Immutability::kByContract;
  if ((seals & F_SEAL_WRITE) != 0) sealed = Immutability::kEnforced;
  return std::unique_ptr<MemoryBlock>(
      std::make_unique<HostBlock>(std::move(reservation), size, std::move(descriptor), UniqueFd(), sealed));
}

}  // namespace

std::unique_ptr<MemoryBackend> MakeHostBackend(const HostBackendOptions& options) {
  return std::make_unique<HostBackend>(options);
}

}  // namespace arraybridge::daemon
