// SPDX-License-Identifier: Apache-2.0
// A wait is a spin, then a sleep in poll: on the doorbell and on the end of the lifeline. The doorbell belongs to two
// clients that need not trust each other: so a sleep is bounded, and an end believes the pages alone.
//
// A spin yields the processor, and the scheduler charges a yield with the rest of the time slice. Where the other end
// computes on the same processor, a spinning end runs again only milliseconds later, when the queue is full or empty. A
// sleeping end is woken at once. SpinBackoff decides which of the two an end does.
#include "client/direct_channels/direct_pages.h"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "proto/boundary/pause.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kWhat = "a direct channel";
constexpr uint64_t kControlBytes = 4096;
constexpr unsigned kPausesPerTurn = 64;  // about two microseconds
// A thread that sleeps checks the pages, and whether it is interrupted, so often.
constexpr milliseconds kSleepMost{1000};
constexpr milliseconds kInterruptedLook{100};

bool IsOver(const DirectWait& how) { return how.until && steady_clock::now() >= *how.until; }

int TimeoutOf(const DirectWait& how) {
  const milliseconds most = how.interrupted ? kInterruptedLook : kSleepMost;
  return static_cast<int>(TimeUntil(how.until, most).count());
}

// Why a wait ends though nothing has happened.
Status EndOf(const DirectWait& how) {
  if (how.interrupted && how.interrupted()) return Status(Code::kCancelled, "interrupted while waiting in a channel");
  if (IsOver(how)) return DeadlineExceeded("the other end of the direct channel did nothing in time");
  if (how.lifeline.lost()) return Unavailable("the connection to the broker is lost");
  return Ok();
}

}  // namespace

Result<std::unique_ptr<DirectPages>> DirectPages::Map(bool produces, Files files) {
  if (files.size() != direct_channel::kFiles)
    return FailedPrecondition("a direct channel has ", files.size(), " files");
  AB_ASSIGN_OR_RETURN(auto control,
                      SharedMapping::Map(files[direct_channel::kControl], kControlBytes, PROT_READ, kWhat));
  const auto& words = *static_cast<const direct_channel::ControlBlock*>(control.base());
  if (words.version != direct_channel::kVersion || words.return_bits != direct_channel::kReturnBits ||
      words.capacity == 0 || words.capacity > direct_channel::kCapacityMax) {
    return FailedPrecondition("the direct channel has layout ", words.version, " with ", words.return_bits,
                              " return bits and ", words.capacity, " slots; this client uses layout ",
                              direct_channel::kVersion, " with ", direct_channel::kReturnBits, " and at most ",
                              direct_channel::kCapacityMax);
  }
  const uint64_t producer_bytes = direct_channel::BytesOfProducerPage(words.capacity);
  const uint64_t consumer_bytes = sizeof(direct_channel::ConsumerPage);
  AB_ASSIGN_OR_RETURN(auto own,
                      SharedMapping::Map(files[direct_channel::kOwn], produces ? producer_bytes : consumer_bytes,
                                         PROT_READ | PROT_WRITE, kWhat));
  auto other =
      SharedMapping::Map(files[direct_channel::kOther], produces ? consumer_bytes : producer_bytes, PROT_READ, kWhat);
  if (!other.ok()) return other.status();
  return std::unique_ptr<DirectPages>(new DirectPages(std::move(own), *std::move(other), std::move(control), files));
}

// The page of each end begins with its progress.
DirectPages::DirectPages(SharedMapping own, SharedMapping other, SharedMapping control, Files files)
    : own_(std::move(own)),
      other_(std::move(other)),
      control_(std::move(control)),
      capacity_(this->control().capacity),
      doorbell_file_(std::move(files[direct_channel::kDoorbell])),
      other_doorbell_file_(std::move(files[direct_channel::kOtherDoorbell])),
      doorbell_(*static_cast<spsc::Progress*>(own_.base()), *static_cast<const spsc::Progress*>(other_.base())) {}

// Callers hold a lock, so this reads nothing from the lifeline: a completion handler would run here.
bool DirectPages::AwaitRevoked(const Lifeline& lifeline) const {
  while (Load(control().revoked, std::memory_order_acquire) != direct_channel::kRevoked) {
    pollfd look{lifeline.socket(), 0, 0};
    if (lifeline.lost() || (::poll(&look, 1, 0) > 0 && (look.revents & (POLLHUP | POLLERR)) != 0)) return false;
    ::sched_yield();  // a few hundred microseconds at most: the broker is busy with nothing else
  }
  return true;
}

bool DirectPages::Pass() {
  const char byte = 1;
  // A full pipe wakes the other end, too.
  if (doorbell_.IsDue()) static_cast<void>(!::write(other_doorbell_file_.get(), &byte, 1));
  return stands();
}

// On one processor a wait that was long is a reason to back off: in it the other end, or another process, kept the
// processor. On several a yield that was long is one: then another process did.
bool DirectPages::Spin(const std::function<bool()>& ready, const DirectWait& how) {
  if (ready()) return true;
  if (how.spin.count() == 0 || backoff_.SkipTurn()) return false;
  const bool alone = how.lifeline.alone();
  const auto begun = steady_clock::now();
  auto longest_yield = steady_clock::duration::zero();
  auto now = begun;
  bool met = false;
  while (!met && now - begun < how.spin) {
    for (unsigned i = 0; i < kPausesPerTurn && !alone && !met; ++i) {
      Pause();
      met = ready();
    }
    if (met) break;
    ::sched_yield();
    const auto yielded = std::exchange(now, steady_clock::now());
    longest_yield = std::max(longest_yield, now - yielded);
    met = ready();
  }
  const auto judged = alone ? now - begun : longest_yield;
  if (judged > SpinBackoff::kShort || met) backoff_.Waited(judged);
  return met;
}

Status DirectPages::Wait(const std::function<bool()>& ready, const DirectWait& how) {
  if (Spin(ready, how)) return Ok();
  bool another_sleeps = false;
  {
    const MutexLock lock(mutex_);
    if (sleeping_) {
      // The thread that sleeps for all wakes at least that often; then this one checks.
      const auto look = steady_clock::now() + milliseconds(TimeoutOf(how));
      woken_.WaitUntil(mutex_, look);
    }
    another_sleeps = std::exchange(sleeping_, true);
  }
  // Without the lock, because it may run a signal handler, which may wait here, too.
  if (another_sleeps) return EndOf(how);
  Status slept = Sleep(ready, how);
  const MutexLock lock(mutex_);
  sleeping_ = false;
  woken_.NotifyAll();
  return slept;
}

Status DirectPages::Sleep(const std::function<bool()>& ready, const DirectWait& how) {
  Status ended;
  while (ended.ok()) {
    doorbell_.Announce();
    ThreadFence(std::memory_order_seq_cst);
    if (ready() || !stands()) break;
    ended = EndOf(how);
    if (ended.ok()) Listen(how.lifeline, TimeoutOf(how));  // then announces its next sleep before it checks again
  }
  doorbell_.Wake();
  return ended;
}

void DirectPages::Listen(Lifeline& lifeline, int timeout_ms) {
  std::array<pollfd, 2> looks{{{doorbell_file_.get(), POLLIN, 0}, {lifeline.socket(), 0, 0}}};
  if (::poll(looks.data(), looks.size(), timeout_ms) <= 0) return;
  if ((looks[1].revents & (POLLHUP | POLLERR)) != 0) lifeline.ReadArrived();
  if (looks[0].revents == 0) return;
  std::array<char, 64> rings;
  static_cast<void>(!::read(doorbell_file_.get(), rings.data(), rings.size()));
}

}  // namespace arraybridge
