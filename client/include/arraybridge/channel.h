// SPDX-License-Identifier: Apache-2.0
// Channel is one end of a named queue of shares. Senders append shares, and each share is received once, in the order
// in which it was sent. The queue is bounded: a sender waits for room, so a slow receiver bounds the memory in use.
//
//   auto frames = broker.OpenChannel("frames", arraybridge::Channel::Role::kSender);
//   arraybridge::Status sent = frames->Send(*broker.Place({&view, 1}), {});
//   if (sent.ok()) sent = frames->Close();
//   // in any other process, which opened the receiving end:
//   for (auto got = frames->Receive({}); got.ok(); got = frames->Receive({})) Use(got->views);
//
// A channel carries one stream after another. A stream begins with its first sender, and ends when the last one has
// closed or is lost. Each end is told once of what happens to its peers, by an error of Receive or Send:
//
//   receivers, after the shares that were sent before        senders
//   OUT_OF_RANGE, CHANNEL_ENDED: the last sender has closed   FAILED_PRECONDITION, NO_RECEIVER: the last receiver has
//   ABORTED, SENDER_DIED: its process or connection ended       closed, and what was queued is dropped
//   ABORTED, SENDER_ABANDONED: it gave its end up             ABORTED, RECEIVER_DIED or RECEIVER_ABANDONED: what is
//                                                               queued stays
//
// The status's metadata has process_id, client, shares (sent or received by that end), missing (shares are known to be
// lost) and stream. The next call goes on: it waits for the peers that are left or come back.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <arraybridge/array.h>

#include "proto/boundary/result.h"

namespace arraybridge {

// The receivers that see a share. kQueue: one of them. kBroadcast: all that are open when it is sent, and later ones as
// `replay` says; there is one copy of the bytes. kLatest: a broadcast in which each receiver gets the newest share, and
// no sender waits. Senders of the last two are not told of their receivers' ends.
enum class ChannelMode : uint8_t { kAsIs, kQueue, kBroadcast, kLatest };
// If a receiver of a broadcast has `capacity` shares to receive: kBlock: senders wait. kDropOldest: it misses the
// oldest. kAsIs: as other ends state it, or kBlock.
enum class OnSlow : uint8_t { kAsIs, kBlock, kDropOldest };

// How a channel is opened. The first end that states one of these sets it for all. FAILED_PRECONDITION of ends that
// state another value: CHANNEL_CAPACITY, CHANNEL_MODE.
struct ChannelOptions {
  uint64_t capacity = 0;  // the maximum number of queued shares, in a broadcast for each receiver; 0: as it is, or 16
  ChannelMode mode = ChannelMode::kAsIs;  // kAsIs: as it is, or kQueue from the first share on
  OnSlow on_slow = OnSlow::kAsIs;         // with kBroadcast
  // With kBroadcast: a new receiver gets so many of the last shares. Nothing: as it is, or 0.
  std::optional<uint64_t> replay{};
  std::string run{};   // of one start of a pipeline, at most 64 bytes: an end with a run is told only of ends of it
  bool fresh = false;  // the first end of the run drops what an earlier run left
};

// An end of the other role is lost, by death or because it gave up: kTell ends the call with ABORTED, kWait goes on.
enum class PeerDeath : uint8_t { kTell, kWait };

// Thread-safe; but what happens to peers is told once, to the threads that wait then, so threads that loop open an end
// each. A copy shares the end; destroying the last copy without Close abandons the end.
class Channel {
 public:
  enum class Role : uint8_t { kSender = 1, kReceiver = 2 };

  const std::string& name() const;
  // The maximum number of queued shares.
  uint64_t capacity() const;
  // As it was when this end opened; kAsIs: no end had stated one.
  ChannelMode mode() const;

  struct SendOptions {
    std::string structure{};
    std::string metadata{};
    // Time to wait for room; nothing: no limit.
    std::optional<std::chrono::milliseconds> timeout{};
    PeerDeath on_peer_death = PeerDeath::kTell;
    // Notices up to this number are not returned (Check). Nothing: up to the last one that this end has returned.
    std::optional<uint64_t> seen_notice{};
  };
  // Moves the placement's bytes into the channel; they belong to the receiver then. DEADLINE_EXCEEDED, CHANNEL_FULL: no
  // room in time. FAILED_PRECONDITION, ABORTED: the last receiver has ended (above), and nothing was sent. NOT_FOUND,
  // CHANNEL_NOT_OPEN: this end is closed. UNAVAILABLE, CHANNEL_LOST: the connection of this end has ended, or this is a
  // forked child. After CANCELLED (Options::interrupted) the broker may still send it.
  Status Send(const Placement& placement, const SendOptions& options);

  // Sends nothing, and returns the errors of Send that concern this end and its peers. A sender calls it that waits for
  // memory, as Broker::Send does. `seen`: the notices up to this number are not told; at first seen_notice() of when
  // the wait began. So two threads that wait in one end are both told. FAILED_PRECONDITION, WRONG_END: this end
  // receives.
  Status Check(PeerDeath on_peer_death, uint64_t* seen);
  // The number of the last notice that a call on this end has returned.
  uint64_t seen_notice() const;

  // Place and Send of host arrays in one step, without a call and without waiting: copies `sources` into the channel.
  // The fastest way for arrays that lie elsewhere. False: it takes a call or a wait, or an array lies in broker memory:
  // use Broker::PlacementOf or Place, and Send, which also report errors in the arguments. The timeout is not used.
  // While the broker ends the direct channel, which takes it less than a millisecond, the call waits for that.
  bool TrySend(std::span<const View> sources, const SendOptions& options);

  struct ReceiveOptions {
    MapMode mode = MapMode::kShared;
    // Time to wait for a share; nothing: no limit.
    std::optional<std::chrono::milliseconds> timeout{};
    PeerDeath on_peer_death = PeerDeath::kTell;
  };
  // Receives the oldest share that no receiver has taken, or in a broadcast that this one has not. DEADLINE_EXCEEDED,
  // CHANNEL_EMPTY: none in time. OUT_OF_RANGE, ABORTED: the stream has ended, or a sender is lost (above). Other errors
  // as Send. A share that arrives after CANCELLED is kept for the next call.
  Result<Acquired> Receive(const ReceiveOptions& options);
  // Receive without a call and without waiting, but as TrySend. Nothing: only a call or a wait can tell.
  std::optional<Result<Acquired>> TryReceive(MapMode mode);

  // Closes this end in order: a sender has sent all that it will send, a receiver wants no more. Calls that wait on
  // this end return. Idempotent.
  Status Close();
  // Closes this end and says that it was given up: a sender's stream is incomplete.
  Status Abandon();

 private:
  friend class Broker;
  class End;
  explicit Channel(std::shared_ptr<End> end) : end_(std::move(end)) {}

  std::shared_ptr<End> end_;
};

}  // namespace arraybridge
