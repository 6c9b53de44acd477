// SPDX-License-Identifier: Apache-2.0
#include "client/process/reclaimer.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "client/process/descriptor_limit.h"

namespace arraybridge {
namespace {

constexpr uint64_t kBatchCount = 256;
constexpr std::chrono::milliseconds kForever{-1};
constexpr std::chrono::milliseconds kNoMemoryPause{10};  // until an allocation is tried again
// The poll interval for devices doubles with each poll, up to this.
constexpr std::chrono::microseconds kDeviceStepMax{20000};

}  // namespace

std::shared_ptr<Reclaimer> Reclaimer::Make(Reclaim reclaim) {
  std::shared_ptr<Reclaimer> reclaimer(new Reclaimer(std::move(reclaim)));
  JoinForkGuard(reclaimer.get());
  return reclaimer;
}

// The list is empty here, because each adopted object owns this reclaimer until it is reclaimed.
Reclaimer::~Reclaimer() { LeaveForkGuard(this); }

Status Reclaimer::Prepare(DeferredRelease& deferred) {
  AB_RETURN_IF_ERROR(Start());
  deferred.reclaimer_ = shared_from_this();
  deferred.fork_generation_ = ForkGeneration();
  deferred.serial_ = adopted_.fetch_add(1, std::memory_order_relaxed) + 1;
  living_.fetch_add(1, std::memory_order_relaxed);
  return Ok();
}

Status Reclaimer::Start() {
  if (started_.load(std::memory_order_acquire)) return Ok();
  MutexLock lock(mutex_);
  if (started_) return Ok();
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return NoDescriptor("the thread that gives memory back", errno);
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  // Blocks all signals, so that the host program's handlers never run on this thread.
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    // The thread is detached and owns what it uses, because the process may exit, or the Broker be destroyed, while
    // arrays live.
    std::thread([self = shared_from_this()] { self->Run(); }).detach();
    started_ = true;
  } catch (const std::system_error&) {
    status = ResourceExhausted("no thread left for the reclaimer");
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

void Reclaimer::Drop(DeferredRelease* deferred) {
  // In a forked child the object belongs to the parent, which gives it back.
  if (deferred->fork_generation_ != ForkGeneration()) return;
  // Once linked, the object may be reclaimed at once, and with it the last reference to the reclaimer. This reference
  // keeps it alive.
  const std::shared_ptr<Reclaimer> reclaimer = std::move(deferred->reclaimer_);
  const bool own = deferred->serial_ > reclaimer->inherited_.load(std::memory_order_seq_cst);
  if (own && deferred->ReleaseAtOnce()) return reclaimer->Forget(deferred);
  reclaimer->Push(deferred);
}

void Reclaimer::Forget(DeferredRelease* deferred) {
  delete deferred;
  // Retire sets `retired_` before the thread reads `living_`, so that one of the two threads sees the other's write.
  if (living_.fetch_sub(1, std::memory_order_seq_cst) == 1 && retired_.load(std::memory_order_seq_cst)) Wake();
}

void Reclaimer::Push(DeferredRelease* deferred) {
  const uint64_t pending = pending_.fetch_add(1, std::memory_order_relaxed) + 1;
  Link(deferred);
  if (pending % kBatchCount == 0 || asleep_.load(std::memory_order_seq_cst)) Wake();
}

void Reclaimer::Link(DeferredRelease* deferred) {
  DeferredRelease* head = dropped_.load(std::memory_order_relaxed);
  do {
    deferred->next_ = head;
  } while (!dropped_.compare_exchange_weak(head, deferred, std::memory_order_seq_cst, std::memory_order_relaxed));
}

void Reclaimer::Wake() {
  asleep_.store(false, std::memory_order_seq_cst);
  const uint64_t one = 1;
  // If the eventfd is full, the thread is awake anyway.
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));
}

void Reclaimer::Nudge() {
  nudged_.store(true, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  if (started_) Wake();
}

void Reclaimer::Retire() {
  retired_.store(true, std::memory_order_seq_cst);
  MutexLock lock(mutex_);
  if (started_) Wake();
}

void Reclaimer::PutBack(DeferredRelease* list) {
  while (list != nullptr) Link(std::exchange(list, list->next_));
  if (asleep_.load(std::memory_order_seq_cst)) Wake();
}

Reclaimer::Batch Reclaimer::TakeDropped() {
  DeferredRelease* next = dropped_.exchange(nullptr, std::memory_order_acquire);
  size_t count = deferred_.size();
  for (const DeferredRelease* one = next; one != nullptr; one = one->next_) ++count;
  Batch batch;
  try {
    batch.reserve(count);
    deferred_.reserve(count);
  } catch (const std::bad_alloc&) {
    PutBack(next);
    throw;
  }
  while (next != nullptr) {
    DeferredRelease* const one = std::exchange(next, next->next_);
    batch.emplace_back(one);
  }
  return batch;
}

Reclaimer::Batch Reclaimer::Take(bool waiting) {
  Batch batch;
  {
    MutexLock lock(mutex_);
    // Take(false) has moved the objects that wait for a device to `deferred_`.
    if (!waiting) batch = TakeDropped();
    if (batch.empty() && deferred_.empty()) return batch;
    batch.reserve(batch.size() + deferred_.size());
    uint64_t held = 0;
    for (const ChildHold& hold : holds_) held = std::max(held, hold.serial);
    for (auto& one : deferred_) batch.push_back(std::move(one));
    deferred_.clear();
    const auto unread = [held](const auto& one) { return one->serial_ > held; };
    const auto ripe = [&](const auto& one) { return unread(one) && one->Waits() == waiting; };
    const auto kept = std::partition(batch.begin(), batch.end(), ripe);
    const bool more = !waiting && std::any_of(kept, batch.end(), unread);
    std::move(kept, batch.end(), std::back_inserter(deferred_));
    batch.erase(kept, batch.end());
    if (more) Wake();
  }
  return batch;
}

void Reclaimer::ReclaimNow(Batch batch) {
  if (batch.empty()) return;
  const auto gone = [this, count = batch.size()] {
    pending_.fetch_sub(count, std::memory_order_release);
    living_.fetch_sub(count, std::memory_order_seq_cst);
  };
  try {
    reclaim_(std::move(batch));
  } catch (const std::bad_alloc&) {
    // Without memory for its message, the broker keeps their leases until the session ends.
    gone();
    throw;
  }
  gone();
}

void Reclaimer::CollectReady() {
  // An object that another thread takes counts until it is reclaimed.
  if (pending_.load(std::memory_order_acquire) == 0) return;
  MutexLock one_at_a_time(reclaiming_);
  ReclaimNow(Take(false));
  // A reclaimed private range has dropped its lease.
  if (dropped_.load(std::memory_order_seq_cst) != nullptr) ReclaimNow(Take(false));
}

uint64_t Reclaimer::AskAboutMore() {
  Batch more = Take(true);
  try {
    at_devices_.reserve(at_devices_.size() + more.size());
  } catch (const std::bad_alloc&) {
    for (auto& one : more) {
      one->next_ = nullptr;
      PutBack(one.release());
    }
    throw;
  }
  for (auto& one : more) at_devices_.push_back({std::move(one), ++last_number_});
  return last_number_;
}

DeviceEvent::State Reclaimer::ReclaimPassed(uint64_t count) {
  Batch passed;
  passed.reserve(at_devices_.size());
  auto left = DeviceEvent::State::kPassed;
  for (AtDevice& one : at_devices_) {
    const DeviceEvent::State state = one.deferred->PollDevice();
    if (state == DeviceEvent::State::kPassed) {
      passed.push_back(std::move(one.deferred));
    } else if (one.number <= count && left != DeviceEvent::State::kPending) {
      left = state;
    }
  }
  std::erase_if(at_devices_, [](const AtDevice& one) { return one.deferred == nullptr; });
  ReclaimNow(std::move(passed));
  return left;
}

DeviceEvent::State Reclaimer::CollectPassed() {
  CollectReady();
  MutexLock one_at_a_time(reclaiming_what_waits_);
  AskAboutMore();
  ReclaimPassed(UINT64_MAX);  // the first poll only asks the devices, for all objects together
  return ReclaimPassed(UINT64_MAX);
}

// Releases the lock between polls, so that a caller that waits for a device does not delay other callers.
bool Reclaimer::Collect(std::chrono::steady_clock::time_point until) {
  CollectReady();
  uint64_t count = 0;
  auto left = DeviceEvent::State::kPassed;
  {
    MutexLock one_at_a_time(reclaiming_what_waits_);
    count = AskAboutMore();
    ReclaimPassed(count);  // as in CollectPassed
    left = ReclaimPassed(count);
  }
  const auto in_time = [until] { return std::chrono::steady_clock::now() < until; };
  for (auto step = kDeviceStepMin; left == DeviceEvent::State::kPending && in_time();
       step = std::min(2 * step, kDeviceStepMax)) {
    std::this_thread::sleep_for(step);
    MutexLock one_at_a_time(reclaiming_what_waits_);
    left = ReclaimPassed(count);
  }
  // The reclaimer's thread may have polled before these objects were added.
  if (left != DeviceEvent::State::kPassed) Wake();
  return left != DeviceEvent::State::kPending;
}

void Reclaimer::Run() {
  Pace pace;
  while (!retired_.load(std::memory_order_seq_cst) || living_.load(std::memory_order_seq_cst) != 0) {
    try {
      RunOnce(pace);
    } catch (const std::bad_alloc&) {
      // It must not end the process, which may free memory meanwhile.
      std::this_thread::sleep_for(kNoMemoryPause);
      pace.pause = kNoMemoryPause;
    }
  }
}

void Reclaimer::RunOnce(Pace& pace) {
  // Between batches the thread does not say that it sleeps, because each drop would then have to wake it.
  if (!pace.busy) Sleep(pace.pause);
  const auto has_drops = [this] { return dropped_.load(std::memory_order_relaxed) != nullptr; };
  // More drops are likely to follow; one message then covers all of them.
  if ((pace.busy || has_drops()) && pending() < kBatchCount) {
    pollfd wait{wake_.get(), POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>(kBatchTime.count())) > 0) ClearWake();
  }
  pace.busy = has_drops();
  DropEndedHolds();
  const DeviceEvent::State left = CollectPassed();
  const bool idle_wanted = idle_ && !retired_.load(std::memory_order_relaxed);
  nudged_.store(false, std::memory_order_relaxed);
  pace.pause = idle_wanted ? idle_() : kForever;
  const bool passed = left == DeviceEvent::State::kPassed;
  pace.device_step = passed ? kDeviceStepMin : std::min(2 * pace.device_step, kDeviceStepMax);
  const auto look = std::chrono::ceil<std::chrono::milliseconds>(pace.device_step);
  if (!passed && (pace.pause < pace.pause.zero() || look < pace.pause)) pace.pause = look;
}

void Reclaimer::Sleep(std::chrono::milliseconds timeout) {
  std::vector<pollfd> waits{{wake_.get(), POLLIN, 0}};
  {
    MutexLock lock(mutex_);
    for (const ChildHold& hold : holds_) waits.push_back({hold.life.get(), POLLIN, 0});
  }
  asleep_.store(true, std::memory_order_seq_cst);
  // A drop before `asleep_` was set sent no wake-up, so check again.
  const bool work = dropped_.load(std::memory_order_seq_cst) != nullptr || nudged_.load(std::memory_order_seq_cst) ||
                    (retired_.load(std::memory_order_seq_cst) && living_.load(std::memory_order_seq_cst) == 0);
  if (!work) ::poll(waits.data(), waits.size(), static_cast<int>(timeout.count()));
  asleep_.store(false, std::memory_order_seq_cst);
  ClearWake();
}

void Reclaimer::ClearWake() {
  uint64_t count = 0;
  static_cast<void>(!::read(wake_.get(), &count, sizeof count));
}

// No object ends at once until it is known which objects the child inherits.
void Reclaimer::BeforeFork() noexcept { inherited_.store(UINT64_MAX, std::memory_order_seq_cst); }

void Reclaimer::NoteHolds() {
  uint64_t held = 0;
  for (const ChildHold& hold : holds_) held = std::max(held, hold.serial);
  inherited_.store(held, std::memory_order_seq_cst);
}

void Reclaimer::AfterForkInParent(int child_life) noexcept {
  MutexLock lock(mutex_);
  if (child_life < 0 || living() == 0) return NoteHolds();
  UniqueFd life(::fcntl(child_life, F_DUPFD_CLOEXEC, 0));
  if (life.valid()) holds_.push_back({std::move(life), adopted_.load(std::memory_order_relaxed)});
  NoteHolds();
  if (started_) Wake();
}

void Reclaimer::DropEndedHolds() {
  MutexLock lock(mutex_);
  std::erase_if(holds_, [](const ChildHold& hold) {
    pollfd look{hold.life.get(), POLLIN, 0};
    return ::poll(&look, 1, 0) > 0;
  });
  NoteHolds();
}

}  // namespace arraybridge
