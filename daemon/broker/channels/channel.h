// A Channel is a bounded FIFO queue of shares. A sent share has no name and belongs to the queue until a session
// receives it and leases it. The channel exists as long as a session has an end of it open, or as shares wait in it for
// a receiver that may come back.
//
// A channel carries one stream after another. A stream begins when a sender opens the channel that has no sender, and
// ends with its last sender. Notices (notices.h) tell receivers how a stream ended and which senders were lost, and
// tell senders how their last receiver ended. docs/channels.md has the states.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/broker/channels/notices.h"
#include "daemon/broker/ids.h"
#include "proto/boundary/result.h"

namespace arraybridge {

class Namespace;
struct DirectChannelRecord;
struct Share;

inline constexpr uint64_t kChannelCapacityDefault = 16;  // shares

enum class ChannelRole : uint8_t { kSender = 1, kReceiver = 2 };

// Not thread-safe.
class Channel {
 public:
  // `queued_in_namespace` counts the queued shares of all channels of `ns`; both outlive the channel.
  Channel(ChannelId id, Namespace& ns, uint64_t& queued_in_namespace, std::string name)
      : id_(id), ns_(&ns), queued_in_namespace_(queued_in_namespace), name_(std::move(name)) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  ChannelId id() const { return id_; }
  Namespace* ns() const { return ns_; }
  const std::string& name() const { return name_; }
  uint64_t capacity() const { return capacity_ == 0 ? kChannelCapacityDefault : capacity_; }
  uint64_t queued() const { return queue_.size(); }
  uint64_t queued_bytes() const { return queued_bytes_; }
  struct Member {
    SessionId session{};
    ChannelEndId end{};
    ChannelRole role{};
  };
  // Its open ends: at most limits.members_per_channel.
  const std::vector<Member>& members() const { return members_; }
  uint64_t senders() const { return senders_; }
  uint64_t receivers() const { return receivers_; }
  // A receiver may still come: for shares that are queued, or to learn that the stream has ended in order.
  bool awaits_receiver() const { return queued() > 0 || end_is_untold(); }
  // The number of the stream that runs, or of the last one; 0: there was none.
  uint64_t stream() const { return stream_; }

  // The first call with a number sets the capacity; 0 sets none. FAILED_PRECONDITION, CHANNEL_CAPACITY: the capacity is
  // set to another number.
  Status Agree(uint64_t capacity);
  // Returns the number of the last notice that precedes this end: it gets the later ones.
  uint64_t Open(const Member& member);
  // An end closes. `end`: what the other ends are told of it, without its position and stream. REQUIRES: it is open.
  void Close(ChannelEndId id, Notice end);

  // Shares that were sent are lost: the notice of the sender says so.
  void MissSome() { missing_ = true; }

  // A notice that the caller has not seen, as ToReceiver or ToSender words it; OK: there is none. `seen`: the number of
  // the last notice that the caller has seen. A receiver gets a notice when the shares before it have been received.
  Status NoticeTo(ChannelRole role, uint64_t seen);
  // Whether a share may be sent now. RESOURCE_EXHAUSTED, CHANNEL_FULL. `from_direct`: the share was sent before on the
  // direct channel, and has room reserved.
  Status CheckSend(bool from_direct = false) const;
  // Whether a share can be received. NOT_FOUND, CHANNEL_EMPTY.
  Status CheckReceive() const;

  // Adds the share to the queue: at the end, or at the front if it was received before.
  void Push(Share& share);
  void PushFront(Share& share);
  // REQUIRES: CheckReceive says OK.
  Share& front() const { return *queue_.front(); }
  void Pop();
  // Takes all shares. They count as queued until their new owner changes that.
  std::deque<Share*> TakeQueue();

  // The direct channel on which the one sender and the one receiver pass shares without calls; null: there is none.
  std::shared_ptr<DirectChannelRecord> direct;
  // Set while no end is open and awaits_receiver(): the channel waits for a receiver until then.
  std::optional<std::chrono::steady_clock::time_point> lingers_until;

 private:
  // No stream runs, and the last one was closed by its senders.
  bool ended_in_order() const;
  // The stream has ended in order, and no receiver ever was, or the last one died, or gave up before it was told so.
  bool end_is_untold() const;
  // Shares that were received, or dropped, of all that were ever sent.
  uint64_t taken() const { return sent_ - queue_.size(); }

  const ChannelId id_;
  Namespace* const ns_;
  uint64_t& queued_in_namespace_;
  const std::string name_;
  uint64_t capacity_ = 0;  // 0: not set
  std::vector<Member> members_;
  uint64_t senders_ = 0;
  uint64_t receivers_ = 0;
  uint64_t stream_ = 0;
  bool had_receivers_ = false;
  bool missing_ = false;           // shares were lost since the last notice to receivers
  uint64_t sent_ = 0;              // shares that were ever queued
  uint64_t told_to_receiver_ = 0;  // number of the last notice that a receiver got
  Notices to_receivers_;
  Notices to_senders_;
  std::deque<Share*> queue_;
  uint64_t queued_bytes_ = 0;
};

// An end that a session has open.
struct ChannelEnd {
  Channel* channel = nullptr;
  ChannelRole role{};
  uint64_t received = 0;  // shares received so far by calls
  uint64_t shares = 0;    // shares sent or received so far, by calls or in direct channels that have ended
};

}  // namespace arraybridge
