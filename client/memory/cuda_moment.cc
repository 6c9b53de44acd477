#include "client/memory/cuda_moment.h"

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

namespace {

using Instant = std::chrono::steady_clock::time_point;

// An unforeseen capture has been spoilt; its next attempt shall not be. Doubled each time.
constexpr std::chrono::milliseconds kPauseMin{100};
constexpr std::chrono::milliseconds kPauseMax{5000};

bool IsCapture(CUresult result) {
  return result == cuda::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED || result == cuda::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

// What is known of captures in this process.
class Captures {
 public:
  static Captures& Get() {
    static auto* const captures = new Captures;  // never destroyed: arrays may outlive everything else
    return *captures;
  }

  void Enter() {
    declared_.fetch_add(1, std::memory_order_seq_cst);
    // Who is asking just now has not seen it. In a forked child nobody asks, and the lock may be held for ever.
    if (CudaDevices::IfUsed() != nullptr) MutexLock until_answered(asking_);
  }
  void Leave() { declared_.fetch_sub(1, std::memory_order_seq_cst); }

  bool Known() {
    return declared_.load(std::memory_order_seq_cst) > 0 ||
           std::chrono::steady_clock::now().time_since_epoch().count() < pause_until_.load();
  }
  // Asks a context unless a capture is known; else 900. Held while the driver answers, unlike other locks of ours: who
  // declares a capture must know that no question is on its way. REQUIRES: inside the context.
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

class CudaMoment final : public Moment {
 public:
  CudaMoment(const CudaDevices& devices, int32_t ordinal) : devices_(devices), ordinal_(ordinal) {}
  ~CudaMoment() override {
    if (event_ == nullptr) return;
    const auto inside = devices_.Enter(ordinal_);
    if (inside.ok()) devices_.driver().EventDestroy(event_);
  }
  CudaMoment(const CudaMoment&) = delete;
  CudaMoment& operator=(const CudaMoment&) = delete;

  Result<State> Look() override;

 private:
  Result<State> Query() AB_REQUIRES(mutex_);

  enum class Stage : uint8_t { kOpen, kRecorded, kPassed };

  const CudaDevices& devices_;
  const int32_t ordinal_;
  Mutex mutex_;
  Stage stage_ AB_GUARDED_BY(mutex_) = Stage::kOpen;
  CUevent event_ = nullptr;  // written under the lock
};

// The moments that can still be joined, and what a capture kept from being unmapped.
struct Table {
  struct Leftover {
    std::shared_ptr<Moment> moment;
    std::function<void()> unmap;
  };
  static Table& Get() {
    static auto* const table = new Table;  // never destroyed, as above
    return *table;
  }

  std::shared_ptr<Moment> Join(const CudaDevices& devices, int32_t ordinal) {
    MutexLock lock(mutex);
    auto open = joinable[ordinal].lock();
    if (open == nullptr) joinable[ordinal] = open = std::make_shared<CudaMoment>(devices, ordinal);
    return open;
  }
  void Close(int32_t ordinal, const CudaMoment* moment) {
    MutexLock lock(mutex);
    const auto open = joinable[ordinal].lock();
    if (open.get() == moment) joinable.erase(ordinal);
  }
  void Retry() {
    std::vector<Leftover> waiting;
    {
      MutexLock lock(mutex);
      waiting.swap(leftovers);
    }
    for (Leftover& one : waiting) {
      const Status passed = WaitFor(*one.moment);
      if (passed.ok()) one.unmap();
      if (passed.code() != Code::kUnavailable) continue;
      MutexLock lock(mutex);
      leftovers.push_back(std::move(one));
    }
  }

  Mutex mutex;
  std::map<int32_t, std::weak_ptr<CudaMoment>> joinable AB_GUARDED_BY(mutex);
  std::vector<Leftover> leftovers AB_GUARDED_BY(mutex);
};

Result<Moment::State> CudaMoment::Look() {
  const auto inside = devices_.Enter(ordinal_);  // refused in a forked child, before any lock
  if (!inside.ok()) return inside.status();
  MutexLock lock(mutex_);
  if (stage_ == Stage::kPassed) return State::kPassed;
  if (stage_ == Stage::kRecorded) return Query();
  Table::Get().Close(ordinal_, this);
  const Driver& driver = devices_.driver();
  // Who can have no event is waited for.
  bool with_event = driver.CtxRecordEvent != nullptr &&
                    (event_ != nullptr || driver.EventCreate(&event_, cuda::kEventDisableTiming) == cuda::CUDA_SUCCESS);
  const cuda::CUcontext context = devices_.ContextOf(ordinal_);
  const CUresult answer = Captures::Get().Ask(driver, [&] {
    const CUresult recorded = with_event ? driver.CtxRecordEvent(context, event_) : cuda::CUDA_ERROR_NOT_SUPPORTED;
    with_event = recorded != cuda::CUDA_ERROR_NOT_SUPPORTED;
    return with_event ? recorded : driver.CtxSynchronize();
  });
  if (IsCapture(answer)) return State::kHeldUp;
  // A context that failed for good does no work.
  if (cuda::IsSticky(answer) || (!with_event && answer == cuda::CUDA_SUCCESS)) {
    stage_ = Stage::kPassed;
    return State::kPassed;
  }
  AB_RETURN_IF_ERROR(driver.Check(answer, with_event ? "cuCtxRecordEvent" : "cuCtxSynchronize"));
  stage_ = Stage::kRecorded;
  return Query();
}

Result<Moment::State> CudaMoment::Query() {
  const Driver& driver = devices_.driver();
  const CUresult answer = driver.EventQuery(event_);
  if (answer == cuda::CUDA_ERROR_NOT_READY || IsCapture(answer)) return State::kPending;
  if (!cuda::IsSticky(answer)) AB_RETURN_IF_ERROR(driver.Check(answer, "cuEventQuery"));
  stage_ = Stage::kPassed;
  return State::kPassed;
}

}  // namespace

std::shared_ptr<Moment> MomentOf(const CudaDevices& devices, int32_t ordinal) {
  return Table::Get().Join(devices, ordinal);
}

void UnmapAfterWork(const CudaDevices& devices, int32_t ordinal, std::function<void()> unmap) {
  if (CudaDevices::IfUsed() == nullptr) return;  // a forked child: what is mapped is the parent's
  Table& table = Table::Get();
  table.Retry();
  auto moment = MomentOf(devices, ordinal);
  const Status passed = WaitFor(*moment);
  if (passed.ok()) return unmap();
  if (passed.code() != Code::kUnavailable) return;
  MutexLock lock(table.mutex);
  table.leftovers.push_back({std::move(moment), std::move(unmap)});
}

void UnmapLeftovers() { Table::Get().Retry(); }

bool DevicesHeldUp() {
  const CudaDevices* const devices = CudaDevices::IfUsed();
  if (devices == nullptr) return false;
  if (Captures::Get().Known()) return true;
  for (const Device& device : devices->all()) {
    if (devices->ContextOf(device.id) == nullptr) continue;
    const auto inside = devices->Enter(device.id);
    cuda::CUstreamCaptureStatus status{};
    if (inside.ok() &&
        devices->driver().StreamIsCapturing(nullptr, &status) == cuda::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
      return true;
    }
  }
  return false;
}

CaptureScope::CaptureScope() { Captures::Get().Enter(); }
CaptureScope::~CaptureScope() { Captures::Get().Leave(); }

}  // namespace arraybridge
