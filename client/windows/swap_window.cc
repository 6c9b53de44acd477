// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/swap_window.h>

#include <bit>
#include <utility>

#include "client/windows/cuda_window.h"
#include "client/windows/host_window.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {
namespace {

// View::copy_on_write is set for the views of a Lease in host memory, and the Lease is their owner.
Result<LeasedSlab> PlaceOfSlab(const View& slab) {
  const bool is_lease = slab.device.type == kDeviceCuda ? slab.read_only : slab.copy_on_write != nullptr;
  if (slab.elements() == 0) return InvalidArgument("the bundle has no bytes").Because("NO_SLAB");
  if (!is_lease) {
    return Unimplemented("the bundle is not a share that was acquired for reading, in host memory or on a GPU")
        .Because("NOT_HOST_MEMORY");
  }
  auto lease = std::static_pointer_cast<const Lease>(slab.owner);
  const auto offset = static_cast<const std::byte*>(slab.data) - lease->arena->shared->data();
  return LeasedSlab{slab, std::move(lease), static_cast<uint64_t>(offset)};
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
  uint64_t bytes = 0;  // of the slab
  bool on_gpu = false;
  std::unique_ptr<WindowMemory> memory;
};

SwapWindow::SwapWindow(std::unique_ptr<State> state) : state_(std::move(state)) {}

SwapWindow::~SwapWindow() = default;

Result<std::shared_ptr<SwapWindow>> SwapWindow::Of(const Bundle& first) {
  AB_ASSIGN_OR_RETURN(const auto slab, PlaceOfSlab(first.views()[1]));
  auto state = std::make_unique<State>();
  state->bytes = slab.view.nbytes();
  state->on_gpu = slab.view.device.type != kDeviceCpu;
  AB_ASSIGN_OR_RETURN(state->memory, state->on_gpu ? GpuWindowFor(slab) : HostWindowFor(slab));
  const std::shared_ptr<SwapWindow> window(new SwapWindow(std::move(state)));
  AB_RETURN_IF_ERROR(window->Prepare(first).status());
  AB_RETURN_IF_ERROR(window->Swap());
  AB_RETURN_IF_ERROR(window->Clean());
  return window;
}

Bundle SwapWindow::Over(const Bundle& bundle) {
  View slab = bundle.views()[1];
  slab.data = const_cast<std::byte*>(state_->memory->slab());  // read_only
  slab.fence = nullptr;
  slab.read_only = true;
  slab.constant = false;
  slab.copy_on_write = nullptr;
  slab.owner = shared_from_this();
  return bundle.Over(std::move(slab));
}

bool SwapWindow::Contains(uint64_t address) const {
  const auto first = std::bit_cast<uint64_t>(state_->memory->slab());
  return address >= first && address - first < state_->bytes;
}

bool SwapWindow::IsOnGpu() const { return state_->on_gpu; }

Result<SwapWindow::How> SwapWindow::Prepare(const Bundle& next) {
  State& state = *state_;
  AB_ASSIGN_OR_RETURN(auto slab, PlaceOfSlab(next.views()[1]));
  const bool on_gpu = slab.view.device.type != kDeviceCpu;
  if (on_gpu != state.on_gpu) return OtherLayout(on_gpu ? "it lies on a GPU" : "it lies in host memory");
  const uint64_t bytes = slab.view.nbytes();
  if (bytes != state.bytes) return OtherLayout(bytes, " bytes in place of ", state.bytes);
  const MutexLock lock(state.mutex);
  if (!state.is_clean) {
    return FailedPrecondition("the window was not cleaned up since the last swap").Because("NOT_CLEAN");
  }
  state.is_prepared = false;
  AB_ASSIGN_OR_RETURN(const How how, state.memory->Prepare(slab));
  state.is_prepared = true;
  state.prepared = how == How::kMapped ? std::move(slab.lease) : nullptr;
  return how;
}

Status SwapWindow::Swap() {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  if (!state.is_prepared) return FailedPrecondition("no generation is prepared").Because("NOT_PREPARED");
  state.is_clean = false;
  AB_RETURN_IF_ERROR(state.memory->Move());
  state.is_prepared = false;
  state.retired = std::exchange(state.live, std::exchange(state.prepared, nullptr));
  return Ok();
}

Status SwapWindow::Clean() {
  State& state = *state_;
  std::shared_ptr<const void> retired;  // both are released outside the lock
  std::shared_ptr<const void> prepared;
  const MutexLock lock(state.mutex);
  AB_RETURN_IF_ERROR(state.memory->Clear());
  state.is_clean = true;
  state.is_prepared = false;
  prepared = std::exchange(state.prepared, nullptr);
  retired = std::exchange(state.retired, nullptr);
  return Ok();
}

}  // namespace arraybridge
