// The Reclaimer gives back what arrays no longer need. The last drop of an array may happen on any thread, without the
// interpreter, during exit: it only links a DeferredRelease into a list. One thread, started with the first, does the
// rest.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "client/fork_guard.h"
#include "client/memory/device_event.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

class Reclaimer;

// What is left when the last view has gone: a lease to end, a range to carve again. Made together with what it stands
// for, so that dropping needs no memory.
class DeferredRelease {
 public:
  virtual ~DeferredRelease() = default;
  // It can only be reclaimed when a device has come so far.
  virtual bool Waits() const { return false; }
  // Whether it has, of what waits; what does not yet is asked again, until it has. Where nobody can tell it is
  // reclaimed too, and must know that. Never waits; one thread at a time.
  virtual DeviceEvent::State PollDevice() { return DeviceEvent::State::kPassed; }
  // Asked by the last drop, on its thread. True: it has been given back, and its destructor is all that is left. Takes
  // no lock, makes no system call. Not asked for what a forked child may still read.
  virtual bool EndAtOnce() noexcept { return false; }
  // A parent process made it: its reclaimer does not run here.
  bool inherited() const { return fork_generation_ != ForkGeneration(); }
  // REQUIRES: a Reclaimer has adopted it.
  Reclaimer& reclaimer() const { return *reclaimer_; }

 private:
  friend class Reclaimer;
  DeferredRelease* next_ = nullptr;
  std::shared_ptr<Reclaimer> reclaimer_;
  uint64_t fork_generation_ = 0;
  uint64_t serial_ = 0;  // in the order of Adopt
};

// Thread-safe.
class Reclaimer : public ForkParticipant, public std::enable_shared_from_this<Reclaimer> {
 public:
  using Batch = std::vector<std::unique_ptr<DeferredRelease>>;
  // Runs on the reclaimer's thread or a caller of Collect; at most one that waits, and one that does not, at a time.
  // Gives back what the batch stands for.
  using Reclaim = std::function<void(Batch)>;
  // Runs on the reclaimer's thread every so often; returns when it wants to run again.
  using Idle = std::function<std::chrono::milliseconds()>;

  static std::shared_ptr<Reclaimer> Make(Reclaim reclaim);
  ~Reclaimer() override;
  Reclaimer(const Reclaimer&) = delete;
  Reclaimer& operator=(const Reclaimer&) = delete;

  // REQUIRES: before the first Adopt.
  void SetIdle(Idle idle) { idle_ = std::move(idle); }

  // An owner whose last drop, on any thread, takes no lock and allocates nothing. RESOURCE_EXHAUSTED: no thread.
  template <class T>
  Result<std::shared_ptr<T>> Adopt(std::unique_ptr<T> deferred) {
    if (Status started = Prepare(*deferred); !started.ok()) return started;
    return std::shared_ptr<T>(deferred.release(), [](T* dropped) { Drop(dropped); });
  }

  // Reclaims what was dropped until now; then all of that is reclaimed but what a capture of a graph holds up. False:
  // not in time, some device has not done with its part, which is left to the reclaimer's thread.
  bool Collect(std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max());
  // As Collect, but what waits for a device is left to the reclaimer's thread.
  void CollectReady();
  // Runs the idle work soon.
  void Nudge();
  // No idle work any more; the thread ends when the last adopted has been reclaimed.
  void Retire();

  uint64_t living() const { return living_.load(std::memory_order_relaxed); }
  uint64_t pending() const { return pending_.load(std::memory_order_relaxed); }

  void BeforeFork() noexcept override;
  void AfterForkInParent(int child_life) noexcept override;

 private:
  // What a child inherited stays whole until the child has gone.
  struct ChildHold {
    UniqueFd life;
    uint64_t serial;
  };

  explicit Reclaimer(Reclaim reclaim) : reclaim_(std::move(reclaim)) {}
  Status Prepare(DeferredRelease& deferred);
  Status Start();
  static void Drop(DeferredRelease* deferred);
  void Push(DeferredRelease* deferred);
  void Forget(DeferredRelease* deferred);
  void NoteHolds() AB_REQUIRES(mutex_);
  void Wake();
  // What was dropped and nobody reads any more: what waits for a device, or what does not.
  Batch Take(bool waiting);
  void ReclaimNow(Batch batch);
  // What was dropped and waits joins what is asked about; the number of the last.
  uint64_t AskAboutMore() AB_REQUIRES(reclaiming_what_waits_);
  // Reclaims what its device has done with. What is left of the first `count`: nothing (kPassed), only what is held up,
  // or more.
  DeviceEvent::State ReclaimPassed(uint64_t count) AB_REQUIRES(reclaiming_what_waits_);
  // The reclaimer's own round, which waits for nothing.
  DeviceEvent::State CollectPassed();
  void Run();
  // Sleeps until a drop, a nudge, a child's end or the timeout.
  void Sleep(std::chrono::milliseconds timeout);
  void DropEndedHolds();

  const Reclaim reclaim_;
  Idle idle_;
  UniqueFd wake_;  // eventfd
  std::atomic<DeferredRelease*> dropped_{nullptr};
  std::atomic<uint64_t> living_{0};
  std::atomic<uint64_t> pending_{0};
  std::atomic<uint64_t> adopted_{0};
  std::atomic<uint64_t> inherited_{0};  // up to this serial a child may read what is dropped here
  std::atomic<bool> asleep_{false};
  std::atomic<bool> nudged_{false};
  std::atomic<bool> retired_{false};
  // One at a time: who has collected knows that everything dropped before is reclaimed.
  Mutex reclaiming_;
  Mutex reclaiming_what_waits_;
  struct AtDevice {
    std::unique_ptr<DeferredRelease> deferred;
    uint64_t number;
  };
  std::vector<AtDevice> at_devices_ AB_GUARDED_BY(reclaiming_what_waits_);  // dropped, and maybe still used there
  uint64_t asked_about_ AB_GUARDED_BY(reclaiming_what_waits_) = 0;
  Mutex mutex_;
  std::atomic<bool> started_{false};  // set under the lock
  std::vector<ChildHold> holds_ AB_GUARDED_BY(mutex_);
  Batch deferred_ AB_GUARDED_BY(mutex_);  // dropped, and maybe still read in a child, or waiting
};

}  // namespace arraybridge
