// SPDX-License-Identifier: Apache-2.0
// Fences tracks the shares of one session that were published before their bytes were written. A share is tracked until
// its bytes are written, the broker knows that, and no process waits for the event. Until the bytes are written, the
// sources of the copies are kept alive.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/memory/fence_event.h"
#include "client/wire/codec.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe. Calls drivers, but never with its lock held.
class Fences {
 public:
  using Instant = std::chrono::steady_clock::time_point;
  using Sources = std::vector<std::shared_ptr<const void>>;

  Fences() = default;
  ~Fences();

  void Add(uint64_t share, std::unique_ptr<RecordedEvent> event, Sources sources);
  // Adds the shares to report to the broker: the work has ended or failed, or the broker answered "awaited" some time
  // ago. Never waits.
  void Emit(codec::Release& release, Instant now);
  // Handles the broker's answer to the shares that Emit reported. A share that is not in `awaited` is no longer
  // tracked, and its event is free.
  void Answered(const codec::Release& reported, std::span<const uint64_t> awaited, Instant now);
  // Returns when all work has ended, or at the deadline.
  void WaitUntil(Instant deadline);
  // Stops tracking and calls no driver any more. The sources and events of pending work are kept for ever, because the
  // device may still need them.
  void GiveUp();
  // The time until the next poll; nothing if no share is tracked.
  std::optional<std::chrono::milliseconds> next_look() const;

 private:
  enum class State : uint8_t { kQueued, kDone, kLost };
  struct Entry {
    uint64_t share = 0;
    std::unique_ptr<RecordedEvent> event;
    Sources sources;
    State state = State::kQueued;
    bool unknown = false;  // at the last poll the driver could not tell whether it is queued
    Instant tell_at{};     // when to report it, once it is not queued any more
  };
  using EntryPointer = std::shared_ptr<Entry>;

  // Polls the queued work. False: some is still queued.
  bool Poll();

  mutable Mutex mutex_;
  std::vector<EntryPointer> entries_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
