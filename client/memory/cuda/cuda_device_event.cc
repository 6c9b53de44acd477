// SPDX-License-Identifier: Apache-2.0
#include "client/memory/cuda/cuda_device_event.h"

#include <arraybridge/device.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "proto/boundary/mutex.h"

namespace arraybridge {

using cuda::CUevent;
using cuda::CUresult;
using cuda::Driver;
using cuda::IsCapture;

namespace {

using Instant = std::chrono::steady_clock::time_point;

// The pause after a query that invalidated a capture, so that the next attempt can succeed. It doubles each time.
constexpr std::chrono::milliseconds kPauseMin{100};
constexpr std::chrono::milliseconds kPauseMax{5000};
constexpr uint32_t kEventFlags = cuda::kEventDisableTiming | cuda::kEventBlockingSync;

// The captures that are known in this process.
class Captures {
 public:
  static Captures& Get() {
    static auto* const captures = new Captures;  // never destroyed, because arrays may outlive other static objects
    return *captures;
  }

  void Enter() {
    declared_.fetch_add(1, std::memory_order_seq_cst);
    // Waits for a query in progress, which has not seen the declaration. Not in a forked child: there the lock may stay
    // held for ever.
    if (CudaDevices::IfUsed() != nullptr) MutexLock until_answered(asking_);
  }
  // True: this was the last declaration.
  bool Leave() { return declared_.fetch_sub(1, std::memory_order_seq_cst) == 1; }

  bool Known() {
    return declared_.load(std::memory_order_seq_cst) > 0 ||
           std::chrono::steady_clock::now().time_since_epoch().count() < pause_until_.load();
  }
  // Queries a context, unless a capture is known: then 900. The lock is held while the driver answers, unlike other
  // locks, because the declaration of a capture must exclude queries in progress. REQUIRES: inside the context.
  template <class Question>
  CUresult Ask(const Driver& driver, Question question) {
    MutexLock lock(asking_);
    if (Known()) return cuda::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    cuda::CUstreamCaptureStatus status{};
    if (driver.StreamIsCapturing(nullptr, &status) == cuda::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
      return cuda::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    const CUresult answer = question();
    if (!IsCapture(answer)) {
      pause_ = kPauseMin;
      return answer;
    }
    pause_until_ = (std::chrono::steady_clock::now() + pause_).time_since_epoch().count();
    pause_ = std::min(2 * pause_, kPauseMax);
    return answer;
  }

 private:
  Mutex asking_;
  std::atomic<int64_t> declared_{0};
  std::atomic<Instant::rep> pause_until_{0};
  std::chrono::milliseconds pause_ AB_GUARDED_BY(asking_) = kPauseMin;
};

class CudaDeviceEvent final : public DeviceEvent {
 public:
  CudaDeviceEvent(const CudaDevices& devices, int32_t ordinal) : devices_(devices), ordinal_(ordinal) {}
  ~CudaDeviceEvent() override {
    if (event_ == nullptr) return;
    const auto inside = devices_.Enter(ordinal_);
    if (inside.ok()) devices_.driver().EventDestroy(event_);
  }

  Result<State> Poll() override;
  Status Wait() override;

 private:
  Result<State> Query() AB_REQUIRES(mutex_);

  const CudaDevices& devices_;
  const int32_t ordinal_;
  Mutex mutex_;  // held while the driver answers; only callers with the same event wait for it
  bool recorded_ AB_GUARDED_BY(mutex_) = false;
  CUevent event_ = nullptr;  // written under the lock, before the event is recorded
  std::atomic<bool> passed_{false};
};

// The events that can still be shared, and memory whose release a capture has delayed.
struct Table {
  struct Kept {
    std::shared_ptr<DeviceEvent> event;
    std::shared_ptr<const void> memory;
  };
  static Table& Get() {
    static auto* const table = new Table;  // never destroyed, as above
    return *table;
  }

  std::shared_ptr<DeviceEvent> Join(const CudaDevices& devices, int32_t ordinal) {
    MutexLock lock(mutex);
    auto open = joinable[ordinal].lock();
    if (open == nullptr) joinable[ordinal] = open = std::make_shared<CudaDeviceEvent>(devices, ordinal);
    return open;
  }
  // REQUIRES: the caller owns the event.
  void Close(int32_t ordinal, const CudaDeviceEvent* event) {
    MutexLock lock(mutex);
    const auto open = joinable[ordinal].lock();
    if (open.get() == event) joinable.erase(ordinal);
  }
  // False: not known yet.
  static bool Release(Kept& one) {
    const Status passed = one.event->Wait();
    if (passed.code() == Code::kUnavailable) return false;
    if (!passed.ok()) Get().Leave(std::move(one.memory));  // the state will never be known
    one.memory.reset();
    return true;
  }
  // Leaks the memory: it stays mapped until the process ends.
  void Leave(std::shared_ptr<const void> memory) {
    MutexLock lock(mutex);
    left.push_back(std::move(memory));
  }
  void Add(Kept one) {
    MutexLock lock(mutex);
    kept.push_back(std::move(one));
  }
  void Retry() {
    for (Kept& one : TakeKept()) {
      if (!Release(one)) Add(std::move(one));
    }
  }
  // As Retry, but releases only what is finished by now, without waiting.
  void RetryAtOnce() {
    for (Kept& one : TakeKept()) {
      auto state = one.event->Poll();  // may only record the event
      if (state.ok() && *state == DeviceEvent::State::kPending) state = one.event->Poll();
      if (!state.ok()) {
        Leave(std::move(one.memory));
      } else if (*state != DeviceEvent::State::kPassed) {
        Add(std::move(one));
      }
    }
  }
  std::vector<Kept> TakeKept() {
    MutexLock lock(mutex);
    return std::exchange(kept, {});
  }

  Mutex mutex;
  std::map<int32_t, std::weak_ptr<CudaDeviceEvent>> joinable AB_GUARDED_BY(mutex);
  std::vector<Kept> kept AB_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<const void>> left AB_GUARDED_BY(mutex);
};

Result<DeviceEvent::State> CudaDeviceEvent::Poll() {
  if (passed_.load()) return State::kPassed;
  const auto inside = devices_.Enter(ordinal_);  // fails in a forked child, before any lock is taken
  if (!inside.ok()) return inside.status();
  MutexLock lock(mutex_);
  if (recorded_) return Query();
  if (Captures::Get().Known()) return State::kHeldUp;
  // Callers that ask from now on may have queued work after the record.
  Table::Get().Close(ordinal_, this);
  const Driver& driver = devices_.driver();
  // Without an event of the context, Wait synchronises the context.
  bool with_event = driver.CtxRecordEvent != nullptr &&
                    (event_ != nullptr || driver.EventCreate(&event_, kEventFlags) == cuda::CUDA_SUCCESS);
  const cuda::CUcontext context = devices_.ContextOf(ordinal_);
  const CUresult answer = Captures::Get().Ask(driver, [&] {
    const CUresult recorded = with_event ? driver.CtxRecordEvent(context, event_) : cuda::CUDA_ERROR_NOT_SUPPORTED;
    with_event = recorded != cuda::CUDA_ERROR_NOT_SUPPORTED;
    return with_event ? recorded : driver.CtxSynchronize();
  });
  if (IsCapture(answer)) return State::kHeldUp;
  // After a sticky error a context executes no work.
  if (cuda::IsSticky(answer) || (!with_event && answer == cuda::CUDA_SUCCESS)) {
    passed_.store(true);
    return State::kPassed;
  }
  AB_RETURN_IF_ERROR(driver.Check(answer, with_event ? "cuCtxRecordEvent" : "cuCtxSynchronize"));
  recorded_ = true;
  return Query();
}

Result<DeviceEvent::State> CudaDeviceEvent::Query() {
  const Driver& driver = devices_.driver();
  const CUresult answer = driver.EventQuery(event_);
  if (answer == cuda::CUDA_ERROR_NOT_READY || IsCapture(answer)) return State::kPending;
  if (!cuda::IsSticky(answer)) AB_RETURN_IF_ERROR(driver.Check(answer, "cuEventQuery"));
  passed_.store(true);
  return State::kPassed;
}

// Waits outside of the lock, so that Poll does not block.
Status CudaDeviceEvent::Wait() {
  const auto state = Poll();
  if (!state.ok() || *state == State::kPassed) return state.status();
  if (*state == State::kHeldUp) {
    return Unavailable("a graph is being captured: the state of the device cannot be queried until the capture ends");
  }
  AB_ASSIGN_OR_RETURN(const auto inside, devices_.Enter(ordinal_));
  const Driver& driver = devices_.driver();
  const CUresult answer = driver.EventSynchronize(event_);
  if (!cuda::IsSticky(answer)) AB_RETURN_IF_ERROR(driver.Check(answer, "cuEventSynchronize"));
  passed_.store(true);
  return Ok();
}

}  // namespace

std::shared_ptr<DeviceEvent> DeviceEventOf(const CudaDevices& devices, int32_t ordinal) {
  return Table::Get().Join(devices, ordinal);
}

void ReleaseAfterWork(const CudaDevices& devices, int32_t ordinal, std::shared_ptr<const void> memory) {
  if (CudaDevices::IfUsed() == nullptr) return;  // in a forked child the lock may stay held for ever
  Table& table = Table::Get();
  table.Retry();
  Table::Kept last{DeviceEventOf(devices, ordinal), std::move(memory)};
  if (!Table::Release(last)) table.Add(std::move(last));
}

CaptureScope::CaptureScope() { Captures::Get().Enter(); }
CaptureScope::~CaptureScope() {
  // In a forked child the lock may stay held for ever.
  if (Captures::Get().Leave() && CudaDevices::IfUsed() != nullptr) Table::Get().RetryAtOnce();
}

}  // namespace arraybridge
