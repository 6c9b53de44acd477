// SPDX-License-Identifier: Apache-2.0
#include "client/memory/cuda/cuda_pin.h"

#include <sys/mman.h>

#include <utility>
#include <vector>

#include "client/memory/cuda/cuda_device_event.h"

namespace arraybridge {
namespace {

// The end of the work of several GPUs.
class EventOfAll final : public DeviceEvent {
 public:
  explicit EventOfAll(std::vector<std::shared_ptr<DeviceEvent>> events) : events_(std::move(events)) {}

  Result<State> Poll() override {
    auto all = State::kPassed;
    for (const auto& event : events_) {
      auto state = event->Poll();
      if (!state.ok()) {
        if (state.status().code() == Code::kAborted) continue;  // this GPU does no more work
        return state;
      }
      if (all == State::kPassed || *state == State::kPending) all = *state == State::kPassed ? all : *state;
    }
    return all;
  }
  Status Wait() override {
    for (const auto& event : events_) {
      if (Status waited = event->Wait(); !waited.ok() && waited.code() != Code::kAborted) return waited;
    }
    return Ok();
  }

 private:
  const std::vector<std::shared_ptr<DeviceEvent>> events_;
};

}  // namespace

Result<std::shared_ptr<const CudaPin>> CudaPin::Of(void* base, uint64_t bytes) {
  AB_ASSIGN_OR_RETURN(const auto devices, CudaDevices::OfThisProcess());
  const std::vector<int32_t> active = devices->Active();
  const int32_t ordinal = active.empty() ? 0 : active.front();
  AB_ASSIGN_OR_RETURN(const auto inside, devices->Enter(ordinal));
  const cuda::Driver& driver = devices->driver();
  AB_RETURN_IF_ERROR(driver.Check(driver.MemHostRegister(base, bytes, cuda::kMemHostRegisterPortable),
                                  "cuMemHostRegister", bytes, " bytes of shared memory"));
  return std::shared_ptr<const CudaPin>(new CudaPin(*devices, ordinal, base, bytes));
}

CudaPin::~CudaPin() {
  // In a forked child CUDA does not work, and the registration is the parent's.
  if (CudaDevices::IfUsed() != nullptr) {
    const auto inside = devices_.Enter(ordinal_);
    if (!inside.ok() || devices_.driver().MemHostUnregister(base_) != cuda::CUDA_SUCCESS) return;
  }
  ::munmap(base_, bytes_);
}

std::shared_ptr<DeviceEvent> CudaPin::Now() const {
  std::vector<std::shared_ptr<DeviceEvent>> events;
  for (const int32_t ordinal : devices_.Active()) events.push_back(DeviceEventOf(devices_, ordinal));
  if (events.empty()) return nullptr;
  return events.size() == 1 ? events.front() : std::make_shared<EventOfAll>(std::move(events));
}

void CudaPin::ReleaseAfterWork(const std::shared_ptr<const CudaPin>& pin) {
  if (CudaDevices::IfUsed() == nullptr) return;
  for (const int32_t gpu : pin->devices_.Active()) arraybridge::ReleaseAfterWork(pin->devices_, gpu, pin);
}

}  // namespace arraybridge
