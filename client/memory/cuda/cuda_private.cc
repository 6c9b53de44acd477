// SPDX-License-Identifier: Apache-2.0
// Private memory on a GPU, for consumers of DLPack that request a copy. DLPack's deleters run on any thread and must
// not call the driver. So a reclaimer thread frees the memory and releases the source of the copy, after the GPU has
// finished all work that was queued until then.
#include <arraybridge/device.h>

#include <utility>

#include "client/memory/cuda/cuda_capture.h"
#include "client/memory/cuda/cuda_copy.h"
#include "client/memory/cuda/cuda_device_event.h"
#include "client/memory/cuda/cuda_devices.h"
#include "client/process/reclaimer.h"

namespace arraybridge {

using cuda::CUdeviceptr;
using cuda::CUstream;

namespace {

// One allocation. REQUIRES: no work uses it when it is destroyed.
class GpuMemory {
 public:
  static Result<std::shared_ptr<GpuMemory>> Make(const CudaDevices& devices, int32_t ordinal, uint64_t bytes) {
    AB_ASSIGN_OR_RETURN(const auto inside, devices.Enter(ordinal));
    std::shared_ptr<GpuMemory> memory(new GpuMemory(devices, ordinal));
    const cuda::Driver& driver = devices.driver();
    AB_RETURN_IF_ERROR(driver.Check(driver.MemAlloc(&memory->address_, bytes), "cuMemAlloc", bytes, " bytes"));
    return memory;
  }
  ~GpuMemory() {
    if (address_ == 0) return;
    if (const auto inside = devices_.Enter(ordinal_); inside.ok()) devices_.driver().MemFree(address_);
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  void* data() const { return reinterpret_cast<void*>(address_); }

 private:
  GpuMemory(const CudaDevices& devices, int32_t ordinal) : devices_(devices), ordinal_(ordinal) {}

  const CudaDevices& devices_;
  const int32_t ordinal_;
  CUdeviceptr address_ = 0;
};

// Memory that the GPU may still use after its last view is destroyed.
class UsedMemory final : public DeferredRelease {
 public:
  UsedMemory(const CudaDevices& devices, int32_t ordinal, std::shared_ptr<const void> memory)
      : devices_(devices), ordinal_(ordinal), memory_(std::move(memory)) {}
  bool Waits() const override { return true; }
  DeviceEvent::State PollDevice() override {
    if (event_ == nullptr) {
      event_ = DeviceEventOf(devices_, ordinal_);
      return DeviceEvent::State::kPending;
    }
    const auto state = event_->Poll();
    if (state.ok()) return *state;
    // If the state of the work will never be known, the memory is leaked. After an error that ends all work on the
    // device it is freed.
    if (state.status().code() != Code::kAborted) new std::shared_ptr<const void>(std::move(memory_));
    return DeviceEvent::State::kPassed;
  }

 private:
  const CudaDevices& devices_;
  const int32_t ordinal_;
  std::shared_ptr<const void> memory_;
  std::shared_ptr<DeviceEvent> event_;
};

// Never destroyed: arrays may outlive other static objects.
const std::shared_ptr<Reclaimer>& TheReclaimer() {
  static auto* const reclaimer = new std::shared_ptr<Reclaimer>(Reclaimer::Make([](const Reclaimer::Batch&) {}));
  return *reclaimer;
}

Result<std::shared_ptr<const void>> UntilUnused(const CudaDevices& devices, int32_t ordinal,
                                                std::shared_ptr<const void> memory) {
  AB_ASSIGN_OR_RETURN(auto used,
                      TheReclaimer()->Adopt(std::make_unique<UsedMemory>(devices, ordinal, std::move(memory))));
  return std::shared_ptr<const void>(std::move(used));
}

// Queues the copy if both ends lie on one GPU and the source is compact; the source is held until the copy is complete.
Result<bool> Queued(const CudaDevices& devices, int32_t ordinal, const View& source, void* destination,
                    uintptr_t stream) {
  if (stream == 0 || !source.compact()) return false;
  AB_ASSIGN_OR_RETURN(const auto inside, devices.Enter(ordinal));
  const cuda::Driver& driver = devices.driver();
  AB_RETURN_IF_ERROR(CheckNotCaptured(driver, std::span(&stream, 1)));
  AB_RETURN_IF_ERROR(OrderAfterProducer(source, stream));
  AB_ASSIGN_OR_RETURN(const auto held, UntilUnused(devices, ordinal, source.owner));
  const uint64_t bytes = source.nbytes();
  const auto address = [](const void* data) { return reinterpret_cast<CUdeviceptr>(data); };
  AB_RETURN_IF_ERROR(driver.Check(
      driver.MemcpyAsync(address(destination), address(source.data), bytes, reinterpret_cast<CUstream>(stream)),
      "cuMemcpyAsync", bytes, " bytes"));
  return true;
}

}  // namespace

Result<View> CopyOnGpu(const View& source, uintptr_t stream) {
  View copy = source;
  copy.strides = CompactStrides(source.shape);
  copy.stream.reset();
  copy.fence.reset();
  copy.read_only = copy.constant = copy.guarded = copy.legacy_may_alias_read_only = false;
  const uint64_t bytes = source.nbytes();
  if (bytes == 0) return copy;
  AB_ASSIGN_OR_RETURN(const auto devices, CudaDevices::OfThisProcess());
  AB_ASSIGN_OR_RETURN(const auto at, devices->Find(source.device));
  AB_ASSIGN_OR_RETURN(const auto memory, GpuMemory::Make(*devices, at.id, bytes));
  copy.data = memory->data();
  AB_ASSIGN_OR_RETURN(copy.owner, UntilUnused(*devices, at.id, memory));
  AB_ASSIGN_OR_RETURN(const auto queued, Queued(*devices, at.id, source, copy.data, stream));
  if (!queued) AB_RETURN_IF_ERROR(CopyOverDevice(source, copy.data, at));
  return copy;
}

}  // namespace arraybridge
