// The Fences are the shares of one session that were published before their bytes were there. They are looked after
// until the bytes have come, the broker knows, and nobody waits for the event any more; until the bytes have come what
// they are copied from stays alive, too.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/codec.h"
#include "client/fence_event.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe. Asks drivers, but never with its lock held.
class Fences {
 public:
  using Instant = std::chrono::steady_clock::time_point;
  using Sources = std::vector<std::shared_ptr<const void>>;

  Fences() = default;
  ~Fences();
  Fences(const Fences&) = delete;
  Fences& operator=(const Fences&) = delete;

  void Add(uint64_t share, std::unique_ptr<RecordedEvent> event, Sources sources);
  // Adds the shares of which the broker must hear: the work has ended, or failed, or it said "awaited" some time ago.
  // Never waits.
  void Emit(codec::Release& release, Instant now);
  // The broker's answer to what Emit said. Who is not `awaited` is looked after no more, and its event free.
  void Answered(const codec::Release& told, std::span<const uint64_t> awaited, Instant now);
  // Returns when all work has ended, or at the deadline.
  void WaitUntil(Instant deadline);
  // No more looking, no more asking drivers. What is pending stays pending: its sources and its event are kept for
  // ever, for the device may still need both.
  void GiveUp();
  // How soon to look again; nothing while there is nothing to look after.
  std::optional<std::chrono::milliseconds> next_look() const;

 private:
  enum class State : uint8_t { kQueued, kDone, kLost };
  struct Entry {
    uint64_t share = 0;
    std::unique_ptr<RecordedEvent> event;
    Sources sources;
    State state = State::kQueued;
    bool untold = false;  // the driver could not say, when it was asked last, whether it still is
    Instant tell_at{};    // once it is not queued any more
  };
  using EntryPointer = std::shared_ptr<Entry>;

  // Asks about what is queued. False: something still is.
  bool Poll();

  mutable Mutex mutex_;
  std::vector<EntryPointer> entries_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
