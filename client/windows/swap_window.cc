// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/swap_window.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <utility>

#include "client/shares/lease.h"
#include "client/windows/address_window.h"
#include "proto/boundary/explained_error.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {
namespace {

uint64_t InPage(uint64_t offset) { return offset % WindowPageSize(); }

// The arena of a slab, and the slab's offset there.
struct SlabPlace {
  std::shared_ptr<const Lease> lease;
  uint64_t offset = 0;
};

// View::copy_on_write is set for the views of a Lease in host memory, and the Lease is their owner.
Result<SlabPlace> PlaceOfSlab(const View& slab) {
  if (slab.device.type != kDeviceCpu || (slab.elements() > 0 && slab.copy_on_write == nullptr)) {
    return Unimplemented("the bundle is not a share in host memory that was acquired for reading")
        .Because("NOT_HOST_MEMORY");
  }
  if (slab.elements() == 0) return InvalidArgument("the bundle has no bytes").Because("NO_SLAB");
  auto lease = std::static_pointer_cast<const Lease>(slab.owner);
  const auto offset = static_cast<const std::byte*>(slab.data) - lease->arena->shared->data();
  return SlabPlace{std::move(lease), static_cast<uint64_t>(offset)};
}

// A file of this process that has the slab's bytes at `skip`.
Result<UniqueFd> CopyOfSlab(const View& slab, uint64_t skip) {
  UniqueFd file(::memfd_create("arraybridge-window", MFD_CLOEXEC));
  const uint64_t bytes = slab.nbytes();
  bool written = file.valid() && ::ftruncate(file.get(), static_cast<off_t>(skip + bytes)) == 0;
  for (uint64_t done = 0; written && done < bytes;) {
    const auto* const from = static_cast<const std::byte*>(slab.data) + done;
    const ssize_t count = ::pwrite(file.get(), from, bytes - done, static_cast<off_t>(skip + done));
    if (count > 0) done += static_cast<uint64_t>(count);
    if (count <= 0) written = count < 0 && errno == EINTR;
  }
  if (written) return file;
  const int error = errno;
  return ResourceExhausted("copying ", bytes, " bytes into a window: ", ExplainedError(error, "this process"));
}

Status OtherLayout(const auto&... parts) {
  return FailedPrecondition("the next generation has another layout: ", parts...).Because("OTHER_LAYOUT");
}

uint64_t OffsetIn(const View& slab, const View& array) {
  if (array.data == nullptr) return 0;
  return static_cast<uint64_t>(static_cast<const std::byte*>(array.data) - static_cast<const std::byte*>(slab.data));
}

}  // namespace

Status SwapWindow::CheckLayout(const Bundle& live, const Bundle& next) {
  if (live.size() != next.size()) return OtherLayout(next.size(), " arrays in place of ", live.size());
  const View& from = live.views()[1];
  const View& to = next.views()[1];
  if (from.nbytes() != to.nbytes()) return OtherLayout(to.nbytes(), " bytes in place of ", from.nbytes());
  for (uint64_t i = 0; i < live.size(); ++i) {
    AB_ASSIGN_OR_RETURN(const auto one, live.At(i));
    AB_ASSIGN_OR_RETURN(const auto other, next.At(i));
    if (one.name != other.name) return OtherLayout("array '", other.name, "' in place of '", one.name, "'");
    if (one.view.type != other.view.type || one.view.shape != other.view.shape)
      return OtherLayout("array '", one.name, "' has another dtype or shape");
    if (one.tie != other.tie || OffsetIn(from, one.view) != OffsetIn(to, other.view))
      return OtherLayout("array '", one.name, "' lies at another place");
  }
  return Ok();
}

// The owners are destroyed after the addresses: the broker may use the bytes of a share again when its owner is gone.
struct SwapWindow::State {
  Mutex mutex;
  std::shared_ptr<const void> live AB_GUARDED_BY(mutex);      // of the generation that is shown; null: a copy
  std::shared_ptr<const void> prepared AB_GUARDED_BY(mutex);  // of the next one
  std::shared_ptr<const void> retired AB_GUARDED_BY(mutex);   // of the one that was swapped out
  bool is_prepared AB_GUARDED_BY(mutex) = false;
  bool is_clean AB_GUARDED_BY(mutex) = true;
  uint64_t skip = 0;   // from the first byte of the window to that of the slab; less than a page
  uint64_t bytes = 0;  // of the slab
  std::unique_ptr<AddressWindow> addresses;
};

SwapWindow::SwapWindow(std::unique_ptr<State> state) : state_(std::move(state)) {}

SwapWindow::~SwapWindow() = default;

Result<std::shared_ptr<SwapWindow>> SwapWindow::Of(const Bundle& first) {
  const View& slab = first.views()[1];
  AB_ASSIGN_OR_RETURN(const auto place, PlaceOfSlab(slab));
  auto state = std::make_unique<State>();
  state->skip = InPage(place.offset);
  state->bytes = slab.nbytes();
  const uint64_t pages = (state->skip + state->bytes + WindowPageSize() - 1) / WindowPageSize();
  AB_ASSIGN_OR_RETURN(state->addresses, AddressWindow::Reserve(pages * WindowPageSize(), place.offset - state->skip));
  const std::shared_ptr<SwapWindow> window(new SwapWindow(std::move(state)));
  AB_RETURN_IF_ERROR(window->Prepare(first).status());
  AB_RETURN_IF_ERROR(window->Swap());
  AB_RETURN_IF_ERROR(window->Clean());
  return window;
}

Bundle SwapWindow::Over(const Bundle& bundle) {
  View slab = bundle.views()[1];
  slab.data = const_cast<std::byte*>(state_->addresses->live() + state_->skip);  // read_only
  slab.read_only = true;
  slab.constant = false;
  slab.copy_on_write = nullptr;
  slab.owner = shared_from_this();
  return bundle.Over(std::move(slab));
}

bool SwapWindow::Contains(uint64_t address) const {
  const auto first = std::bit_cast<uint64_t>(state_->addresses->live()) + state_->skip;
  return address >= first && address - first < state_->bytes;
}

Result<SwapWindow::How> SwapWindow::Prepare(const Bundle& next) {
  State& state = *state_;
  const View& slab = next.views()[1];
  AB_ASSIGN_OR_RETURN(auto place, PlaceOfSlab(slab));
  if (slab.nbytes() != state.bytes) return OtherLayout(slab.nbytes(), " bytes in place of ", state.bytes);
  const bool mapped = InPage(place.offset) == state.skip;
  UniqueFd copy;
  if (!mapped) {
    AB_ASSIGN_OR_RETURN(copy, CopyOfSlab(slab, state.skip));
  }
  const int file = mapped ? place.lease->arena->handle.descriptor.get() : copy.get();
  const MutexLock lock(state.mutex);
  if (!state.is_clean) {
    return FailedPrecondition("the window was not cleaned up since the last swap").Because("NOT_CLEAN");
  }
  state.is_prepared = false;
  AB_RETURN_IF_ERROR(state.addresses->MapBeside(file, mapped ? place.offset - state.skip : 0));
  state.is_prepared = true;
  state.prepared = mapped ? std::move(place.lease) : nullptr;
  return mapped ? How::kMapped : How::kCopied;
}

Status SwapWindow::Swap() {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  if (!state.is_prepared) return FailedPrecondition("no generation is prepared").Because("NOT_PREPARED");
  state.is_clean = false;
  AB_RETURN_IF_ERROR(state.addresses->Move());
  state.is_prepared = false;
  state.retired = std::exchange(state.live, std::exchange(state.prepared, nullptr));
  return Ok();
}

Status SwapWindow::Clean() {
  State& state = *state_;
  std::shared_ptr<const void> retired;  // both are released outside the lock
  std::shared_ptr<const void> prepared;
  const MutexLock lock(state.mutex);
  AB_RETURN_IF_ERROR(state.addresses->Clear());
  state.is_clean = true;
  state.is_prepared = false;
  prepared = std::exchange(state.prepared, nullptr);
  retired = std::exchange(state.retired, nullptr);
  return Ok();
}

}  // namespace arraybridge
