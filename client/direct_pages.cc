// A wait is a spin, which yields, then a sleep in poll: on the doorbell and on the end of the lifeline. The doorbell belongs to
// two clients that need not trust each other, so a sleep is bounded, and what it says is looked up in the pages.
#include "client/direct_pages.h"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kWhat = "a direct channel";
constexpr uint64_t kControlBytes = 4096;
constexpr unsigned kSpinsPerLook = 8;  // at the clock
// So often who sleeps looks by itself, and asks whether it is interrupted.
constexpr milliseconds kSleepMost{1000};
constexpr milliseconds kInterruptedLook{100};

bool IsOver(const DirectWait& how) { return how.until && steady_clock::now() >= *how.until; }

int SleepOf(const DirectWait& how) {
  const milliseconds most = how.interrupted ? kInterruptedLook : kSleepMost;
  if (!how.until) return static_cast<int>(most.count());
  const auto left = std::chrono::ceil<milliseconds>(*how.until - steady_clock::now());
  return static_cast<int>(std::clamp(left, milliseconds(0), most).count());
}

Status Interrupted() { return Status(Code::kCancelled, "interrupted while waiting in a channel"); }
Status Over() { return DeadlineExceeded("the other end of the direct channel did nothing in time"); }

}  // namespace

Result<std::unique_ptr<DirectPages>> DirectPages::Map(bool sends, Files files) {
  std::unique_ptr<DirectPages> mapped(new DirectPages);
  auto control = SharedMapping::Map(files.control, kControlBytes, PROT_READ, kWhat);
  if (!control.ok()) return control.status();
  mapped->control_ = *std::move(control);
  const direct_channel::ControlBlock& words = mapped->control();
  if (words.version != direct_channel::kVersion || words.slots != direct_channel::kSlots || words.capacity == 0 ||
      words.capacity > direct_channel::kCapacityMax) {
    return FailedPrecondition("the direct channel has layout ", words.version, ", this client uses ", direct_channel::kVersion);
  }
  mapped->capacity_ = words.capacity;
  const uint64_t own_bytes = sends ? direct_channel::BytesOfProducerPage(words.capacity) : sizeof(direct_channel::ConsumerPage);
  const uint64_t other_bytes = sends ? sizeof(direct_channel::ConsumerPage) : direct_channel::BytesOfProducerPage(words.capacity);
  auto own = SharedMapping::Map(files.own, own_bytes, PROT_READ | PROT_WRITE, kWhat);
  if (!own.ok()) return own.status();
  mapped->own_ = *std::move(own);
  auto other = SharedMapping::Map(files.other, other_bytes, PROT_READ, kWhat);
  if (!other.ok()) return other.status();
  mapped->other_ = *std::move(other);
  mapped->doorbell_ = std::move(files.doorbell);
  mapped->other_doorbell_ = std::move(files.other_doorbell);
  return mapped;
}

bool DirectPages::AwaitEnd(Lifeline& lifeline) const {
  while (Load(control().revoked, std::memory_order_acquire) != direct_channel::kEnded) {
    if (!lifeline.alive()) return false;
    ::sched_yield();  // a few hundred microseconds at most: the broker has nothing else to do right now
  }
  return true;
}

void DirectPages::RingIfAsleep(const uint64_t& asleep, uint64_t& rung) const {
  const uint64_t sleep = Load(asleep, std::memory_order_relaxed);
  if (sleep == 0 || sleep == rung) return;
  rung = sleep;
  const char byte = 1;
  // Full means that it has been rung often enough.
  static_cast<void>(!::write(other_doorbell_.get(), &byte, 1));
}

Status DirectPages::Wait(uint64_t& asleep, const std::function<bool()>& ready, const DirectWait& how) {
  std::optional<Deadline> spin_until;
  for (unsigned turn = 1; how.spin.count() > 0; ++turn) {
    if (ready()) return Ok();
    if (turn % kSpinsPerLook == 0) {
      const auto now = steady_clock::now();
      if (!spin_until) spin_until = now + how.spin;
      if (now >= *spin_until) break;
    }
    ::sched_yield();
  }
  {
    const MutexLock lock(mutex_);
    if (sleeping_) {
      // The one that sleeps for all looks at least that often; then this one looks.
      const auto look = steady_clock::now() + milliseconds(SleepOf(how));
      woken_.WaitUntil(mutex_, look);
    }
    if (sleeping_) {
      if (how.interrupted && how.interrupted()) return Interrupted();
      if (IsOver(how)) return Over();
      if (how.lifeline.lost()) return Unavailable("the connection to the broker is lost");
      return Ok();
    }
    sleeping_ = true;
  }
  Status slept = Sleep(asleep, ready, how);
  const MutexLock lock(mutex_);
  sleeping_ = false;
  woken_.NotifyAll();
  return slept;
}

Status DirectPages::Sleep(uint64_t& asleep, const std::function<bool()>& ready, const DirectWait& how) {
  direct_channel::FallAsleep(asleep, ++sleeps_);
  Status status;
  while (!ready() && stands()) {
    if (how.interrupted && how.interrupted()) {
      status = Interrupted();
      break;
    }
    if (IsOver(how)) {
      status = Over();
      break;
    }
    Listen(how.lifeline, SleepOf(how));
    if (how.lifeline.lost()) {
      status = Unavailable("the connection to the broker is lost");
      break;
    }
    direct_channel::FallAsleep(asleep, ++sleeps_);  // what was rung for is looked at next
  }
  Store(asleep, 0, std::memory_order_relaxed);
  return status;
}

void DirectPages::Listen(Lifeline& lifeline, int timeout_ms) {
  std::array<pollfd, 2> looks{{{doorbell_.get(), POLLIN, 0}, {lifeline.socket(), 0, 0}}};
  if (::poll(looks.data(), looks.size(), timeout_ms) <= 0) return;
  if ((looks[1].revents & (POLLHUP | POLLERR)) != 0) lifeline.ReadArrived();
  if (looks[0].revents == 0) return;
  std::array<char, 64> rings;
  static_cast<void>(!::read(doorbell_.get(), rings.data(), rings.size()));
}

}  // namespace arraybridge
