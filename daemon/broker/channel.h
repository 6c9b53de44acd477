// A Channel is a bounded queue of shares: what is sent into it has no name and belongs to the queue, until somebody
// receives it and has a lease. First in, first out. It is there as long as somebody has it open.
//
// The end of a stream is part of it: receivers that have drained the queue are told that every sender has closed, or
// that one went without a word and something may be missing.
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

inline constexpr uint64_t kChannelCapacityDefault = 16;  // shares, if nobody says otherwise

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
  // Shares may come, or have, of which nobody could know yet.
  bool awaits_first_receiver() const { return had_senders_ && !had_receivers_; }

  // The first that says a number decides; 0 says none. FAILED_PRECONDITION, CHANNEL_CAPACITY: it is another one.
  Status Agree(uint64_t capacity);
  void Open(const Member& member);
  // `complete`: nothing is missing from what this sender sent. REQUIRES: the end is open.
  void Close(ChannelEndId end, bool complete);

  // Something that was sent is lost.
  void MissSome() { incomplete_ = true; }

  // Whether a share may be sent now. RESOURCE_EXHAUSTED, CHANNEL_FULL; FAILED_PRECONDITION, NO_RECEIVER. `from_direct`:
  // it was sent before, and there is room.
  Status CheckSend(bool from_direct = false) const;
  // Whether there is one to receive. NOT_FOUND, CHANNEL_EMPTY; OUT_OF_RANGE, CHANNEL_ENDED; ABORTED, SENDER_DIED.
  Status CheckReceive() const;

  // The share is in the queue: last, or first again if it was received before.
  void Push(Share& share);
  void PushFront(Share& share);
  // REQUIRES: CheckReceive says OK.
  Share& front() const { return *queue_.front(); }
  void Pop();
  // All of them, which count as queued until their new owner says otherwise.
  std::deque<Share*> TakeQueue();

  // How its one sender and its one receiver pass shares without calls; null: they do not.
  std::shared_ptr<DirectChannelRecord> direct;
  // No end is open, and none ever received: until when it waits for one that does.
  std::optional<std::chrono::steady_clock::time_point> lingers_until;

 private:
  const ChannelId id_;
  Namespace* const ns_;
  uint64_t& queued_in_namespace_;
  const std::string name_;
  uint64_t capacity_ = 0;  // 0: nobody has said
  std::vector<Member> members_;
  uint64_t senders_ = 0;
  uint64_t receivers_ = 0;
  bool had_senders_ = false;
  bool had_receivers_ = false;
  bool incomplete_ = false;  // a sender went without closing
  std::deque<Share*> queue_;
  uint64_t queued_bytes_ = 0;
};

// What a session has open.
struct ChannelEnd {
  Channel* channel = nullptr;
  ChannelRole role{};
  uint64_t received = 0;  // shares, so far
};

}  // namespace arraybridge
