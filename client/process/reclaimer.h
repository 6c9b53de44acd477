// SPDX-License-Identifier: Apache-2.0
// The Reclaimer gives back the memory that arrays no longer need. The last drop of an array may happen on any thread,
// without the interpreter, or during exit, so it only links a DeferredRelease into a list. One thread, started with the
// first array, does the rest.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "client/process/device_event.h"
#include "client/process/fork_guard.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

class Reclaimer;

// The work that remains when the last view is dropped: a lease to end, or a range to free. It is created together with
// the object that it releases, so that dropping allocates no memory.
class DeferredRelease {
 public:
  virtual ~DeferredRelease() = default;
  // True if it can be reclaimed only after a device has finished its work.
  virtual bool Waits() const { return false; }
  // Polls the device, if Waits(). The reclaimer polls again until the work has passed. If the device's state cannot be
  // known, the object is reclaimed too, and must handle that case. Never waits. Called by one thread at a time.
  virtual DeviceEvent::State PollDevice() { return DeviceEvent::State::kPassed; }
  // Called by the last drop, on its thread. Returns true if the object has given everything back and only needs
  // deleting. Takes no lock and makes no system call. Not called for an object that a forked child may still read.
  virtual bool ReleaseAtOnce() noexcept { return false; }
  // True if a parent process made it; the parent's reclaimer does not run in this process.
  bool inherited() const { return fork_generation_ != ForkGeneration(); }
  // REQUIRES: a Reclaimer has adopted it.
  Reclaimer& reclaimer() const { return *reclaimer_; }

 private:
  friend class Reclaimer;
  DeferredRelease* next_ = nullptr;
  std::shared_ptr<Reclaimer> reclaimer_;
  uint64_t fork_generation_ = 0;
  uint64_t serial_ = 0;  // counts calls of Adopt
};

// Thread-safe.
class Reclaimer : public ForkParticipant, public std::enable_shared_from_this<Reclaimer> {
 public:
  using Batch = std::vector<std::unique_ptr<DeferredRelease>>;
  // Gives back the objects of a batch. Runs on the reclaimer's thread or in a caller of Collect. At most one call for
  // objects that wait for a device, and one for the others, run at the same time.
  using Reclaim = std::function<void(Batch)>;
  // Runs periodically on the reclaimer's thread. Returns the time until the next run.
  using Idle = std::function<std::chrono::milliseconds()>;

  static std::shared_ptr<Reclaimer> Make(Reclaim reclaim);
  ~Reclaimer() override;

  // REQUIRES: no call of Adopt yet.
  void SetIdle(Idle idle) { idle_ = std::move(idle); }

  // Returns an owner whose last drop, on any thread, takes no lock and allocates nothing. RESOURCE_EXHAUSTED: no thread
  // can be started.
  template <class T>
  Result<std::shared_ptr<T>> Adopt(std::unique_ptr<T> deferred) {
    if (Status started = Prepare(*deferred); !started.ok()) return started;
    return std::shared_ptr<T>(deferred.release(), [](T* dropped) { Drop(dropped); });
  }

  // Reclaims everything dropped until now, except objects held up by a graph capture. Returns false on timeout: a
  // device has not finished, and the reclaimer's thread continues with the rest.
  bool Collect(std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max());
  // As Collect, but leaves objects that wait for a device to the reclaimer's thread.
  void CollectReady();
  // Starts the thread for the idle work of a process that has no arrays yet. RESOURCE_EXHAUSTED: no thread can be
  // started. Idempotent.
  Status Start();
  // Makes the idle work run soon.
  void Nudge();
  // Stops the idle work. The thread ends when the last adopted object has been reclaimed.
  void Retire();

  uint64_t living() const { return living_.load(std::memory_order_relaxed); }
  uint64_t pending() const { return pending_.load(std::memory_order_relaxed); }

  void BeforeFork() noexcept override;
  void AfterForkInParent(int child_life) noexcept override;

 private:
  // Keeps the objects that a child inherited until the child has exited or called exec.
  struct ChildHold {
    UniqueFd life;
    uint64_t serial;
  };

  explicit Reclaimer(Reclaim reclaim) : reclaim_(std::move(reclaim)) {}
  Status Prepare(DeferredRelease& deferred);
  static void Drop(DeferredRelease* deferred);
  void Push(DeferredRelease* deferred);
  void Link(DeferredRelease* deferred);
  void Forget(DeferredRelease* deferred);
  void NoteHolds() AB_REQUIRES(mutex_);
  void Wake();
  // Takes the dropped objects that no child reads: those that wait for a device, or the others. Throws bad_alloc if
  // there is no memory for the batch; then all objects stay dropped.
  Batch Take(bool waiting);
  Batch TakeDropped() AB_REQUIRES(mutex_);
  // Drops taken objects again. Allocates nothing.
  void PutBack(DeferredRelease* list);
  void ReclaimNow(Batch batch);
  // Adds the dropped objects that wait for a device to `at_devices_`. Returns the number of the last one.
  uint64_t AskAboutMore() AB_REQUIRES(reclaiming_what_waits_);
  // Reclaims the objects whose device has finished. The result tells what remains of the first `count` objects: none
  // (kPassed), only ones that are held up, or others as well.
  DeviceEvent::State ReclaimPassed(uint64_t count) AB_REQUIRES(reclaiming_what_waits_);
  // One round of the reclaimer's thread; never waits.
  DeviceEvent::State CollectPassed();
  void Run();
  static constexpr std::chrono::milliseconds kBatchTime{5};
  static constexpr std::chrono::microseconds kDeviceStepMin{50};
  struct Pace {
    std::chrono::milliseconds pause = kBatchTime;  // until the next round, unless something happens
    std::chrono::microseconds device_step = kDeviceStepMin;
    bool busy = false;  // objects were dropped in the last round
  };
  // One round of the reclaimer's thread. Throws bad_alloc; the next round tries again.
  void RunOnce(Pace& pace);
  // Sleeps until a drop, a nudge, a child's end or the timeout.
  void Sleep(std::chrono::milliseconds timeout);
  void ClearWake();
  void DropEndedHolds();

  const Reclaim reclaim_;
  Idle idle_;
  UniqueFd wake_;  // eventfd
  std::atomic<DeferredRelease*> dropped_{nullptr};
  std::atomic<uint64_t> living_{0};
  std::atomic<uint64_t> pending_{0};
  std::atomic<uint64_t> adopted_{0};
  std::atomic<uint64_t> inherited_{0};  // a child may read dropped objects up to this serial
  std::atomic<bool> asleep_{false};
  std::atomic<bool> nudged_{false};
  std::atomic<bool> retired_{false};
  // Serialises Collect: when it returns, everything dropped before the call has been reclaimed.
  Mutex reclaiming_;
  Mutex reclaiming_what_waits_;
  struct AtDevice {
    std::unique_ptr<DeferredRelease> deferred;
    uint64_t number;
  };
  std::vector<AtDevice> at_devices_ AB_GUARDED_BY(reclaiming_what_waits_);  // dropped; a device may still use them
  uint64_t last_number_ AB_GUARDED_BY(reclaiming_what_waits_) = 0;
  Mutex mutex_;
  std::atomic<bool> started_{false};  // set with the lock held
  std::vector<ChildHold> holds_ AB_GUARDED_BY(mutex_);
  Batch deferred_ AB_GUARDED_BY(mutex_);  // dropped; a child may still read them, or they wait for a device
};

}  // namespace arraybridge
