// SPDX-License-Identifier: Apache-2.0
#include "client/arenas/fences.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "proto/boundary/failpoint.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;

// The poll interval for queued work. A copy takes microseconds to milliseconds, and until then the broker holds back
// readers that cannot wait for events.
constexpr milliseconds kQueuedStep{1};
// The poll interval while another client has a lease of the share, or a driver cannot tell the state.
constexpr milliseconds kAwaitedStep{100};
constexpr std::chrono::microseconds kWaitStep{50};

bool Has(std::span<const uint64_t> numbers, uint64_t number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

void KeepForEver(Fences::Sources sources) {
  struct Kept {
    Mutex mutex;
    std::vector<Fences::Sources> all AB_GUARDED_BY(mutex);
  };
  static auto* const kept = new Kept;  // never destroyed
  MutexLock lock(kept->mutex);
  kept->all.push_back(std::move(sources));
}

}  // namespace

Fences::~Fences() { GiveUp(); }

void Fences::GiveUp() {
  std::vector<EntryPointer> entries;
  {
    MutexLock lock(mutex_);
    entries.swap(entries_);
  }
  for (const EntryPointer& entry : entries) {
    entry->event->Retire();
    if (entry->state == State::kQueued) KeepForEver(std::move(entry->sources));
  }
}

void Fences::Add(uint64_t share, std::unique_ptr<RecordedEvent> event, Sources sources) {
  auto entry = std::make_shared<Entry>();
  entry->share = share;
  entry->event = std::move(event);
  entry->sources = std::move(sources);
  MutexLock lock(mutex_);
  entries_.push_back(std::move(entry));
}

bool Fences::Poll() {
  std::vector<EntryPointer> queued;
  {
    MutexLock lock(mutex_);
    for (const EntryPointer& entry : entries_) {
      if (entry->state == State::kQueued) queued.push_back(entry);
    }
  }
  bool all = true;
  for (const EntryPointer& entry : queued) {
    const auto passed = entry->event->Passed();
    // If the state is unknown, the work may still read its sources, so they are kept.
    const bool unknown = !passed.ok() && passed.status().code() != Code::kAborted;
    Sources gone;  // destroyed outside the lock
    MutexLock lock(mutex_);
    if (entry->state != State::kQueued) continue;  // another thread was first
    entry->unknown = unknown;
    if (unknown || (passed.ok() && !*passed)) {
      all = false;
      continue;
    }
    entry->state = passed.ok() ? State::kDone : State::kLost;
    gone.swap(entry->sources);
  }
  return all;
}

void Fences::Emit(codec::Release& release, Instant now) {
  Poll();
  MutexLock lock(mutex_);
  for (const EntryPointer& entry : entries_) {
    if (entry->state == State::kQueued || entry->tell_at > now) continue;
    (entry->state == State::kLost ? release.lost : release.done).push_back(entry->share);
    entry->tell_at = now + kAwaitedStep;  // unless the broker answers before
  }
}

void Fences::Answered(const codec::Release& reported, std::span<const uint64_t> awaited, Instant now) {
  std::vector<EntryPointer> gone;
  MutexLock lock(mutex_);
  for (auto next = entries_.begin(); next != entries_.end();) {
    Entry& entry = **next;
    const bool was_reported = Has(reported.done, entry.share) || Has(reported.lost, entry.share);
    if (!was_reported || entry.state == State::kQueued) {
      ++next;
      continue;
    }
    if (Has(awaited, entry.share) && !Failpoint("event_reuse")) {
      entry.tell_at = now + kAwaitedStep;
      ++next;
      continue;
    }
    // After an error the event's state is meaningless, so the event is not reused.
    if (entry.state == State::kLost) entry.event->Retire();
    gone.push_back(std::move(*next));
    next = entries_.erase(next);
  }
}

void Fences::WaitUntil(Instant deadline) {
  while (!Poll() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(kWaitStep);
}

std::optional<milliseconds> Fences::next_look() const {
  MutexLock lock(mutex_);
  if (entries_.empty()) return std::nullopt;
  const auto queued = [](const EntryPointer& entry) { return entry->state == State::kQueued && !entry->unknown; };
  return std::any_of(entries_.begin(), entries_.end(), queued) ? kQueuedStep : kAwaitedStep;
}

}  // namespace arraybridge
