// A Channel is a bounded FIFO queue of shares. A sent share has no name and belongs to the queue until a session
// receives it and leases it. The channel exists as long as a session has an end of it open.
//
// The channel also reports the end of the stream: receivers that have drained the queue learn either that every sender
// has closed, or that a sender ended without closing and shares may be missing.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  // Shares may be sent, or were, before the first receiver opened the channel.
  bool awaits_first_receiver() const { return had_senders_ && !had_receivers_; }

  // The first call with a number sets the capacity; 0 sets none. FAILED_PRECONDITION, CHANNEL_CAPACITY: the capacity is
  // set to another number.
  Status Agree(uint64_t capacity);
  void Open(const Member& member);
  // `complete`: the channel has everything that this sender sent. REQUIRES: the end is open.
  void Close(ChannelEndId end, bool complete);

  // A sent share is lost.
  void MissSome() { incomplete_ = true; }

  // Whether a share may be sent now. RESOURCE_EXHAUSTED, CHANNEL_FULL; FAILED_PRECONDITION, NO_RECEIVER. `from_direct`:
  // the share was sent before on the direct channel, and has room reserved.
  Status CheckSend(bool from_direct = false) const;
  // Whether a share can be received. NOT_FOUND, CHANNEL_EMPTY; OUT_OF_RANGE, CHANNEL_ENDED; ABORTED, SENDER_DIED.
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
  // Set while no end is open and no receiver ever was: the channel waits for a first receiver until then.
  std::optional<std::chrono::steady_clock::time_point> lingers_until;

 private:
  const ChannelId id_;
  Namespace* const ns_;
  uint64_t& queued_in_namespace_;
  const std::string name_;
  uint64_t capacity_ = 0;  // 0: not set
  std::vector<Member> members_;
  uint64_t senders_ = 0;
  uint64_t receivers_ = 0;
  bool had_senders_ = false;
  bool had_receivers_ = false;
  bool incomplete_ = false;  // a sender ended without closing
  std::deque<Share*> queue_;
  uint64_t queued_bytes_ = 0;
};

// An end that a session has open.
struct ChannelEnd {
  Channel* channel = nullptr;
  ChannelRole role{};
  uint64_t received = 0;  // shares received so far
};

}  // namespace arraybridge
