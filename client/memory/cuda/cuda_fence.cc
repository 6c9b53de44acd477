// SPDX-License-Identifier: Apache-2.0
// An event must not be recorded again while a reader may wait for it. A wait captures the latest record at the moment
// it is queued, so a reader that waits after a second record also waits for the work of another share. If that work
// waits, directly or not, for the reader, both wait for ever. So an event belongs to one generation of one share, from
// its record until both of these hold:
//   1. The producer has seen the event occur (Passed) and has told the broker. From then on the broker tells sessions
//      that acquire the share that it is done, and does not send the event.
//   2. No lease that was granted before is left. The broker says so (`awaited`): a reader may wait with any of its
//      streams as long as it has its lease.
// Only then the RecordedEvent is destroyed, and its event returns to the pool. If the producer cannot know, because the
// connection broke, it retires the event. A reader's import ends with its leases, because the 64 bytes of a handle may
// name another event after the producer has restarted.
#include "client/memory/cuda/cuda_fence.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "client/memory/cuda/cuda_capture.h"
#include "client/memory/cuda/cuda_event_pool.h"
#include "client/memory/cuda/cuda_openings.h"
#include "proto/boundary/environment.h"
#include "proto/boundary/failpoint.h"
#include "proto/boundary/fence.h"

namespace arraybridge {

using cuda::CUevent;
using cuda::CUipcEventHandle;
using cuda::CUstream;
using cuda::Driver;

namespace {

class PoolEvent final : public RecordedEvent {
 public:
  PoolEvent(const CudaDevices& devices, int32_t ordinal, CudaEventPool& pool, const CudaEventPool::Event* event)
      : devices_(devices), ordinal_(ordinal), pool_(pool), event_(event) {}
  ~PoolEvent() override {
    if (!retired_) pool_.Release(event_);
  }
  PoolEvent(const PoolEvent&) = delete;
  PoolEvent& operator=(const PoolEvent&) = delete;

  CUevent get() const { return event_->event; }
  const std::string& handle() const override { return event_->handle; }
  void Retire() override { retired_ = true; }
  Result<bool> Passed() const override {
    AB_ASSIGN_OR_RETURN(const auto inside, devices_.Enter(ordinal_));
    const Driver& driver = devices_.driver();
    const cuda::CUresult answer = driver.EventQuery(event_->event);
    if (answer == cuda::CUDA_ERROR_NOT_READY) return false;
    AB_RETURN_IF_ERROR(driver.Check(answer, "cuEventQuery"));
    return true;
  }

 private:
  const CudaDevices& devices_;
  const int32_t ordinal_;
  CudaEventPool& pool_;
  const CudaEventPool::Event* const event_;
  bool retired_ = false;
};

// Records on the one stream, or, for several, on a stream of our own after it waits for all of them.
Status Record(const CudaDevices& devices, int32_t ordinal, std::span<const uintptr_t> streams, CUevent event) {
  const Driver& driver = devices.driver();
  if (streams.size() == 1) return driver.Check(driver.EventRecord(event, StreamOf(streams[0])), "cuEventRecord");
  AB_ASSIGN_OR_RETURN(const auto own, devices.OwnStream(ordinal));
  for (const uintptr_t stream : streams) {
    // Each wait captures the preceding record.
    AB_RETURN_IF_ERROR(driver.Check(driver.EventRecord(event, StreamOf(stream)), "cuEventRecord"));
    AB_RETURN_IF_ERROR(driver.Check(driver.StreamWaitEvent(own, event, 0), "cuStreamWaitEvent"));
  }
  return driver.Check(driver.EventRecord(event, own), "cuEventRecord");
}

// An opened event of another process.
class OpenedEvent {
 public:
  static Result<std::unique_ptr<OpenedEvent>> Open(const CudaDevices& devices, int32_t ordinal,
                                                   const std::string& handle) {
    AB_ASSIGN_OR_RETURN(const auto inside, devices.Enter(ordinal));
    const Driver& driver = devices.driver();
    CUipcEventHandle bytes{};
    std::memcpy(&bytes, handle.data(), sizeof bytes);
    std::unique_ptr<OpenedEvent> opened(new OpenedEvent(devices, ordinal));
    const Status status = driver.Check(driver.IpcOpenEventHandle(&opened->event_, bytes), "cuIpcOpenEventHandle");
    if (status.ok()) return opened;
    return Unavailable("this process cannot open the event of the producer: ", status.message())
        .Because("EVENT_NOT_OPENED");
  }
  ~OpenedEvent() {
    if (event_ == nullptr) return;
    // Queued waits stay valid.
    if (const auto inside = devices_.Enter(ordinal_); inside.ok()) devices_.driver().EventDestroy(event_);
  }
  OpenedEvent(const OpenedEvent&) = delete;
  OpenedEvent& operator=(const OpenedEvent&) = delete;

  CUevent get() const { return event_; }

 private:
  OpenedEvent(const CudaDevices& devices, int32_t ordinal) : devices_(devices), ordinal_(ordinal) {}

  const CudaDevices& devices_;
  const int32_t ordinal_;
  CUevent event_ = nullptr;
};

CudaOpenings<OpenedEvent>& EventOpenings() {
  static auto* const openings = new CudaOpenings<OpenedEvent>;
  return *openings;
}

class CudaFenceEvent final : public FenceEvent {
 public:
  // `opened`: null for an event of this process.
  CudaFenceEvent(const CudaDevices& devices, int32_t ordinal, CUevent event, std::shared_ptr<const OpenedEvent> opened,
                 std::function<bool()> maker_ended)
      : devices_(devices),
        ordinal_(ordinal),
        event_(event),
        opened_(std::move(opened)),
        maker_ended_(std::move(maker_ended)) {}

  // Polls another process's event: whether the driver ends a wait when that process dies is not documented.
  Status Wait() const override {
    if (Failpoint("event_wait")) return Ok();
    AB_ASSIGN_OR_RETURN(const auto inside, devices_.Enter(ordinal_));
    const Driver& driver = devices_.driver();
    if (opened_ == nullptr) return Explained(driver.EventSynchronize(event_), "cuEventSynchronize");
    bool ended = false;
    auto ask_at = std::chrono::steady_clock::now() + kAskAfter;
    for (auto pause = kPauseMin;; pause = std::min(2 * pause, kPauseMax)) {
      const cuda::CUresult answer = driver.EventQuery(event_);
      if (answer != cuda::CUDA_ERROR_NOT_READY || ended) return Explained(answer, "cuEventQuery");
      std::this_thread::sleep_for(pause);
      if (std::chrono::steady_clock::now() < ask_at) continue;
      ended = maker_ended_();  // then one more query: the event may have occurred just before the end
      ask_at = std::chrono::steady_clock::now() + kAskAfter;
    }
  }
  Status OrderBefore(uintptr_t stream) const override {
    if (Failpoint("event_wait")) return Ok();
    AB_ASSIGN_OR_RETURN(const auto inside, devices_.Enter(ordinal_));
    const Driver& driver = devices_.driver();
    // A graph that is being captured cannot depend on work outside of it, so this waits until that work has ended.
    AB_ASSIGN_OR_RETURN(const auto captured, IsCaptured(driver, stream));
    if (captured || (opened_ != nullptr && !StreamsWait())) return Wait();
    return Explained(driver.StreamWaitEvent(StreamOf(stream), event_, 0), "cuStreamWaitEvent");
  }

 private:
  static constexpr std::chrono::seconds kAskAfter{1};
  static constexpr std::chrono::microseconds kPauseMin{20};
  static constexpr std::chrono::microseconds kPauseMax{500};

  // A stream that waits for the event of a process that died could wait for ever. Until a card has shown that none does
  // (docs/gpu-status.md, E13), a program has to ask for it.
  static bool StreamsWait() {
    static const bool wait = Environment("ARRAYBRIDGE_STREAMS_WAIT") == "1";
    return wait;
  }
  Status Explained(cuda::CUresult result, const char* symbol) const {
    const bool lost = result == cuda::CUDA_ERROR_INVALID_HANDLE || result == cuda::CUDA_ERROR_NOT_READY;
    if (!lost) return devices_.driver().Check(result, symbol);
    return Unavailable(
               "the producer of these bytes died before they were complete: get the share anew, or put it again")
        .Because("FENCE_LOST");
  }

  const CudaDevices& devices_;
  const int32_t ordinal_;
  const CUevent event_;
  const std::shared_ptr<const OpenedEvent> opened_;
  const std::function<bool()> maker_ended_;
};

}  // namespace

Result<std::unique_ptr<RecordedEvent>> RecordAfter(const Device& device, std::span<const uintptr_t> streams) {
  AB_ASSIGN_OR_RETURN(const auto devices, CudaDevices::OfThisProcess());
  AB_ASSIGN_OR_RETURN(const auto at, devices->Find(device));
  AB_ASSIGN_OR_RETURN(const auto inside, devices->Enter(at.id));
  AB_RETURN_IF_ERROR(CheckNotCaptured(devices->driver(), streams));
  CudaEventPool& pool = CudaEventPool::Of(*devices, at.id);
  const CudaEventPool::Event* const free = pool.Take();
  if (free == nullptr) return std::unique_ptr<RecordedEvent>();
  auto event = std::make_unique<PoolEvent>(*devices, at.id, pool, free);
  AB_RETURN_IF_ERROR(Record(*devices, at.id, streams, event->get()));
  return std::unique_ptr<RecordedEvent>(std::move(event));
}

Result<std::shared_ptr<const FenceEvent>> OpenEvent(const Device& device, const std::string& handle,
                                                    std::function<bool()> maker_ended) {
  if (handle.size() != kEventBytes) {
    return InvalidArgument("an event of ", handle.size(), " bytes, not ", kEventBytes);
  }
  AB_ASSIGN_OR_RETURN(const auto devices, CudaDevices::OfThisProcess());
  AB_ASSIGN_OR_RETURN(const auto at, devices->Find(device));
  if (const CUevent own = CudaEventPool::FindOwn(handle); own != nullptr) {
    return std::shared_ptr<const FenceEvent>(std::make_shared<CudaFenceEvent>(*devices, at.id, own, nullptr, nullptr));
  }
  auto opened = EventOpenings().Get(handle, [&] { return OpenedEvent::Open(*devices, at.id, handle); });
  if (!opened.ok()) return opened.status();
  const CUevent event = (*opened)->get();
  return std::shared_ptr<const FenceEvent>(
      std::make_shared<CudaFenceEvent>(*devices, at.id, event, *std::move(opened), std::move(maker_ended)));
}

}  // namespace arraybridge
