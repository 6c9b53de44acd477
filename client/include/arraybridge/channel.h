// Channel is one end of a named queue of shares: what senders put in, each receiver takes out once, in the order in
// which it was sent. It holds so many shares and no more: a sender waits for room, so a slow receiver bounds memory.
//
//   auto frames = broker.OpenChannel("frames", arraybridge::Channel::Role::kSender);
//   frames->Send(*broker.Place({&view, 1}), {});          frames->Close();
//   // in any other process, which opened the receiving end:
//   while (auto got = frames->Receive({}); got.ok()) Use(got->views);
//
// The stream ends when the last sender has closed: receivers get what is queued, then OUT_OF_RANGE. An end that goes
// without Close (its process died, or forgot) has left something out: then ABORTED. Once the last receiver has gone,
// what is queued is dropped and sending is FAILED_PRECONDITION.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <arraybridge/array.h>

#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe. Copying shares the end; the last copy that goes without Close abandons it.
class Channel {
 public:
  enum class Role : uint8_t { kSender = 1, kReceiver = 2 };

  const std::string& name() const;
  // Shares that wait in it at most.
  uint64_t capacity() const;

  struct SendOptions {
    std::string structure{};
    std::string metadata{};
    // For room; nothing: as long as it takes.
    std::optional<std::chrono::milliseconds> timeout{};
  };
  // The placement's bytes belong to the channel, then to who receives them. DEADLINE_EXCEEDED, CHANNEL_FULL: no room
  // in time; FAILED_PRECONDITION, NO_RECEIVER: nobody receives any more; NOT_FOUND, CHANNEL_NOT_OPEN: it was closed;
  // UNAVAILABLE, CHANNEL_LOST: the connection it was opened on has ended, or this is a forked child. After CANCELLED
  // (Options::interrupted) the broker may send it yet.
  Status Send(const Placement& placement, const SendOptions& options);

  struct ReceiveOptions {
    MapMode mode = MapMode::kShared;
    // For a share; nothing: as long as it takes.
    std::optional<std::chrono::milliseconds> timeout{};
  };
  // The share that was sent first of those that nobody has received. DEADLINE_EXCEEDED, CHANNEL_EMPTY: none in time;
  // OUT_OF_RANGE, CHANNEL_ENDED: none will come; ABORTED, SENDER_DIED: none will come, and some may be missing; else as
  // Send. What comes after CANCELLED is kept for the next call.
  Result<Acquired> Receive(const ReceiveOptions& options);

  // Nothing is missing from what this end sent. Who waits on it is answered. Idempotent.
  Status Close();
  // Closes it, and receivers are told that something is missing.
  Status Abandon();

 private:
  friend class Broker;
  class End;
  explicit Channel(std::shared_ptr<End> end) : end_(std::move(end)) {}

  std::shared_ptr<End> end_;
};

}  // namespace arraybridge
