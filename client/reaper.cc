#include "client/reaper.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

#include "client/descriptor_limit.h"

namespace arraybridge {
namespace {

constexpr std::chrono::milliseconds kBatchTime{2};
constexpr uint64_t kBatchCount = 256;
constexpr std::chrono::milliseconds kForever{-1};
// Between two looks at a device: as long as it has taken already, within these.
constexpr std::chrono::microseconds kDeviceStepMin{50};
constexpr std::chrono::microseconds kDeviceStepMax{20000};

}  // namespace

std::shared_ptr<Reaper> Reaper::Make(Bury bury) {
  std::shared_ptr<Reaper> reaper(new Reaper(std::move(bury)));
  JoinForkGuard(reaper.get());
  return reaper;
}

// Buried or never adopted: nothing is left in the list, because everything adopted owns this reaper.
Reaper::~Reaper() { LeaveForkGuard(this); }

Status Reaper::Prepare(Remains& remains) {
  AB_RETURN_IF_ERROR(Start());
  remains.reaper_ = shared_from_this();
  remains.fork_generation_ = ForkGeneration();
  remains.serial_ = adopted_.fetch_add(1, std::memory_order_relaxed) + 1;
  living_.fetch_add(1, std::memory_order_relaxed);
  return Ok();
}

Status Reaper::Start() {
  if (started_.load(std::memory_order_acquire)) return Ok();
  MutexLock lock(mutex_);
  if (started_) return Ok();
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return NoDescriptor("the thread that gives memory back", errno);
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  // Signals are the host program's business: its handlers never run here.
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    // Detached, and owning what it uses: the process may exit, or the Broker go, while arrays live.
    std::thread([self = shared_from_this()] { self->Run(); }).detach();
    started_ = true;
  } catch (const std::system_error&) {
    status = ResourceExhausted("no thread left for the reaper");
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

void Reaper::Drop(Remains* remains) {
  // In a forked child it is the parent's to give back; the child forgets it.
  if (remains->fork_generation_ != ForkGeneration()) return;
  // Held here: once linked, the remains may be buried at once, and with them the last reference to the reaper.
  const std::shared_ptr<Reaper> reaper = std::move(remains->reaper_);
  const bool own = remains->serial_ > reaper->inherited_.load(std::memory_order_seq_cst);
  if (own && remains->EndAtOnce()) return reaper->Forget(remains);
  reaper->Push(remains);
}

void Reaper::Forget(Remains* remains) {
  delete remains;
  // Who retires looks at what lives after saying so: one of the two sees the other.
  if (living_.fetch_sub(1, std::memory_order_seq_cst) == 1 && retired_.load(std::memory_order_seq_cst)) Wake();
}

void Reaper::Push(Remains* remains) {
  const uint64_t pending = pending_.fetch_add(1, std::memory_order_relaxed) + 1;
  Remains* head = dropped_.load(std::memory_order_relaxed);
  do {
    remains->next_ = head;
  } while (!dropped_.compare_exchange_weak(head, remains, std::memory_order_seq_cst, std::memory_order_relaxed));
  if (pending % kBatchCount == 0 || asleep_.load(std::memory_order_seq_cst)) Wake();
}

void Reaper::Wake() {
  asleep_.store(false, std::memory_order_seq_cst);
  const uint64_t one = 1;
  // Full means awake.
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));
}

void Reaper::Nudge() {
  nudged_.store(true, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  if (started_) Wake();
}

void Reaper::Retire() {
  retired_.store(true, std::memory_order_seq_cst);
  MutexLock lock(mutex_);
  if (started_) Wake();
}

Reaper::Batch Reaper::Take(bool waiting) {
  Batch batch;
  // What waits has been deferred by whoever took the rest.
  Remains* next = waiting ? nullptr : dropped_.exchange(nullptr, std::memory_order_acquire);
  while (next != nullptr) {
    Remains* const one = std::exchange(next, next->next_);
    batch.emplace_back(one);
  }
  {
    MutexLock lock(mutex_);
    if (batch.empty() && deferred_.empty()) return batch;
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

void Reaper::BuryNow(Batch batch) {
  if (batch.empty()) return;
  const uint64_t count = batch.size();
  bury_(std::move(batch));
  pending_.fetch_sub(count, std::memory_order_relaxed);
  living_.fetch_sub(count, std::memory_order_seq_cst);
}

void Reaper::CollectReady() {
  MutexLock one_at_a_time(burying_);
  BuryNow(Take(false));
  // A private range that was buried has dropped its lease.
  if (dropped_.load(std::memory_order_seq_cst) != nullptr) BuryNow(Take(false));
}

uint64_t Reaper::AskAboutMore() {
  for (auto& one : Take(true)) at_devices_.push_back({std::move(one), ++asked_about_});
  return asked_about_;
}

Moment::State Reaper::BuryPassed(uint64_t count) {
  Batch passed;
  auto left = Moment::State::kPassed;
  for (AtDevice& one : at_devices_) {
    const Moment::State state = one.remains->LookAtDevice();
    if (state == Moment::State::kPassed) {
      passed.push_back(std::move(one.remains));
    } else if (one.number <= count && left != Moment::State::kPending) {
      left = state;
    }
  }
  std::erase_if(at_devices_, [](const AtDevice& one) { return one.remains == nullptr; });
  BuryNow(std::move(passed));
  return left;
}

Moment::State Reaper::CollectPassed() {
  CollectReady();
  MutexLock one_at_a_time(burying_what_waits_);
  AskAboutMore();
  BuryPassed(UINT64_MAX);  // the first look only says until where, for all that look together
  return BuryPassed(UINT64_MAX);
}

// Others bury between the looks, too: who waits for a device keeps nobody else waiting.
bool Reaper::Collect(std::chrono::steady_clock::time_point until) {
  CollectReady();
  uint64_t count = 0;
  auto left = Moment::State::kPassed;
  {
    MutexLock one_at_a_time(burying_what_waits_);
    count = AskAboutMore();
    BuryPassed(count);  // as above
    left = BuryPassed(count);
  }
  const auto in_time = [until] { return std::chrono::steady_clock::now() < until; };
  for (auto step = kDeviceStepMin; left == Moment::State::kPending && in_time();
       step = std::min(2 * step, kDeviceStepMax)) {
    std::this_thread::sleep_for(step);
    MutexLock one_at_a_time(burying_what_waits_);
    left = BuryPassed(count);
  }
  // The reaper may have looked before these were there.
  if (left != Moment::State::kPassed) Wake();
  return left != Moment::State::kPending;
}

void Reaper::Run() {
  std::chrono::milliseconds pause = kBatchTime;
  auto device_step = kDeviceStepMin;
  while (!retired_.load(std::memory_order_seq_cst) || living() != 0) {
    Sleep(pause);
    // More will follow: one message for all of them.
    if (dropped_.load(std::memory_order_relaxed) != nullptr && pending() < kBatchCount) {
      pollfd wait{wake_.get(), POLLIN, 0};
      ::poll(&wait, 1, static_cast<int>(kBatchTime.count()));
    }
    DropEndedHolds();
    const Moment::State left = CollectPassed();
    const bool idle_wanted = idle_ && !retired_.load(std::memory_order_relaxed);
    nudged_.store(false, std::memory_order_relaxed);
    pause = idle_wanted ? idle_() : kForever;
    device_step = left == Moment::State::kPassed ? kDeviceStepMin : std::min(2 * device_step, kDeviceStepMax);
    const auto look = std::chrono::ceil<std::chrono::milliseconds>(device_step);
    if (left != Moment::State::kPassed && (pause < pause.zero() || look < pause)) pause = look;
  }
}

void Reaper::Sleep(std::chrono::milliseconds timeout) {
  std::vector<pollfd> waits{{wake_.get(), POLLIN, 0}};
  {
    MutexLock lock(mutex_);
    for (const ChildHold& hold : holds_) waits.push_back({hold.life.get(), POLLIN, 0});
  }
  asleep_.store(true, std::memory_order_seq_cst);
  // A drop between the last look and the flag saw nobody asleep: look again.
  const bool work = dropped_.load(std::memory_order_seq_cst) != nullptr || nudged_.load(std::memory_order_seq_cst) ||
                    (retired_.load(std::memory_order_seq_cst) && living() == 0);
  if (!work) ::poll(waits.data(), waits.size(), static_cast<int>(timeout.count()));
  asleep_.store(false, std::memory_order_seq_cst);
  uint64_t count = 0;
  static_cast<void>(!::read(wake_.get(), &count, sizeof count));
}

// Nothing ends at once until it is known what the child has.
void Reaper::BeforeFork() noexcept { inherited_.store(UINT64_MAX, std::memory_order_seq_cst); }

void Reaper::NoteHolds() {
  uint64_t held = 0;
  for (const ChildHold& hold : holds_) held = std::max(held, hold.serial);
  inherited_.store(held, std::memory_order_seq_cst);
}

void Reaper::AfterForkInParent(int child_life) noexcept {
  MutexLock lock(mutex_);
  if (child_life < 0 || living() == 0) return NoteHolds();
  UniqueFd life(::fcntl(child_life, F_DUPFD_CLOEXEC, 0));
  if (life.valid()) holds_.push_back({std::move(life), adopted_.load(std::memory_order_relaxed)});
  NoteHolds();
  if (started_) Wake();
}

void Reaper::DropEndedHolds() {
  MutexLock lock(mutex_);
  std::erase_if(holds_, [](const ChildHold& hold) {
    pollfd look{hold.life.get(), POLLIN, 0};
    return ::poll(&look, 1, 0) > 0;
  });
  NoteHolds();
}

}  // namespace arraybridge
