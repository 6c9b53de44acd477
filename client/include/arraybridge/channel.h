// Channel is one end of a named queue of shares. Senders append shares, and each share is received once, in the order
// in which it was sent. The queue is bounded: a sender waits for room, so a slow receiver bounds the memory in use.
//
//   auto frames = broker.OpenChannel("frames", arraybridge::Channel::Role::kSender);
//   frames->Send(*broker.Place({&view, 1}), {});          frames->Close();
//   // in any other process, which opened the receiving end:
//   while (auto got = frames->Receive({}); got.ok()) Use(got->views);
//
// The stream ends when the last sender has closed: receivers get the queued shares, then OUT_OF_RANGE. If a sending end
// ends without Close (its process died, or the last copy was destroyed), the stream may be incomplete: receivers get
// ABORTED instead. When the last receiver has ended, queued shares are dropped and Send fails with FAILED_PRECONDITION.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <arraybridge/array.h>

#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe. A copy shares the end; destroying the last copy without Close abandons the end.
class Channel {
 public:
  enum class Role : uint8_t { kSender = 1, kReceiver = 2 };

  const std::string& name() const;
  // The maximum number of queued shares.
  uint64_t capacity() const;

  struct SendOptions {
    std::string structure{};
    std::string metadata{};
    // Time to wait for room; nothing: no limit.
    std::optional<std::chrono::milliseconds> timeout{};
  };
  // Moves the placement's bytes into the channel; they belong to the receiver then. DEADLINE_EXCEEDED, CHANNEL_FULL: no
  // room in time. FAILED_PRECONDITION, NO_RECEIVER: all receivers have closed. NOT_FOUND, CHANNEL_NOT_OPEN: this end is
  // closed. UNAVAILABLE, CHANNEL_LOST: the connection of this end has ended, or this is a forked child. After CANCELLED
  // (Options::interrupted) the broker may still send it.
  Status Send(const Placement& placement, const SendOptions& options);

  struct ReceiveOptions {
    MapMode mode = MapMode::kShared;
    // Time to wait for a share; nothing: no limit.
    std::optional<std::chrono::milliseconds> timeout{};
  };
  // Receives the oldest share that no receiver has taken. DEADLINE_EXCEEDED, CHANNEL_EMPTY: none in time. OUT_OF_RANGE,
  // CHANNEL_ENDED: the stream is complete. ABORTED, SENDER_DIED: the stream has ended and may be incomplete. Other
  // errors as Send. A share that arrives after CANCELLED is kept for the next call.
  Result<Acquired> Receive(const ReceiveOptions& options);

  // Declares the stream of this end complete. Calls that wait on this end return. Idempotent.
  Status Close();
  // Closes this end and declares its stream incomplete.
  Status Abandon();

 private:
  friend class Broker;
  class End;
  explicit Channel(std::shared_ptr<End> end) : end_(std::move(end)) {}

  std::shared_ptr<End> end_;
};

}  // namespace arraybridge
