// SPDX-License-Identifier: Apache-2.0
// A Channel is a bounded FIFO queue of shares. A sent share has no name and belongs to the queue until a session
// receives it and leases it. The channel exists as long as a session has an end of it open, or as shares wait in it for
// a receiver that may come back.
//
// In a queue each share goes to one receiver. In a broadcast each receiver has a position of its own. A share stays
// until all receivers are past it and it is not one of the last `replay` shares. `kLatest` is a broadcast in which each
// receiver gets the newest share.
//
// A channel carries one stream after another. A stream begins when a sender opens the channel that has no sender, and
// ends with its last sender. Notices (notices.h) tell receivers how a stream ended and which senders were lost, and
// tell senders how their last receiver ended. docs/guides/channels.md has the states.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/broker/ledger/channel_terms.h"
#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/objects/notices.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

class Namespace;
class ShareUses;
struct DirectChannelRecord;
struct Share;

inline constexpr uint64_t kChannelCapacityDefault = 16;  // shares

// Not thread-safe.
class Channel {
 public:
  // `queued_in_namespace` counts the queued shares of all channels of `ns`, `uses` its bytes, `of_all` the shares that
  // passed through any channel; all of them outlive the channel.
  Channel(ChannelId id, Namespace& ns, uint64_t& queued_in_namespace, ShareUses& uses, ChannelTotals& of_all,
          std::string name)
      : id_(id),
        ns_(&ns),
        queued_in_namespace_(queued_in_namespace),
        uses_(uses),
        of_all_(of_all),
        name_(std::move(name)) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  ChannelId id() const { return id_; }
  Namespace* ns() const { return ns_; }
  const std::string& name() const { return name_; }
  uint64_t capacity() const { return past_.terms.capacity == 0 ? kChannelCapacityDefault : past_.terms.capacity; }
  // As stated, or as its first share decided: kUnset means that the mode can still be stated.
  ChannelMode mode() const {
    return past_.terms.mode == ChannelMode::kUnset && past_.begun ? ChannelMode::kQueue : past_.terms.mode;
  }
  const ChannelTerms& terms() const { return past_.terms; }
  bool broadcasts() const { return past_.terms.mode > ChannelMode::kQueue; }
  // Shares that the channel keeps: waiting shares, and shares for new receivers.
  uint64_t queued() const { return queue_.size(); }
  uint64_t queued_bytes() const { return queued_bytes_; }
  const std::deque<Share*>& queue() const { return queue_; }
  // The shares that wait for a receiver: in a queue all, in a broadcast the shares of its slowest receiver.
  uint64_t most_waiting() const;
  struct Member {
    SessionId session{};
    ChannelEndId end{};
    ChannelRole role{};
    // For a receiver of a broadcast: the sequence of the last share that it received or missed, and its missed shares.
    uint64_t passed = 0;
    uint64_t dropped = 0;
    // A receiver that opened when no stream ran and nothing waited for it: the last notice of that time.
    uint64_t late = 0;
    Run run{};  // as it stated
  };
  // Its open ends: at most limits.members_per_channel.
  const std::vector<Member>& members() const { return members_; }
  // Null: it is not open.
  const Member* FindMember(ChannelEndId end) const;
  uint64_t senders() const { return senders_; }
  uint64_t receivers() const { return receivers_; }
  // A receiver may still come: for shares that are queued, or to learn that the stream has ended in order.
  bool awaits_receiver() const { return queued() > 0 || has_unread_end(); }
  // The stream has ended in order, and no receiver ever was, or the last one died, or gave up before it was told so:
  // the next one is told.
  bool has_unread_end() const;
  // The number of the stream that runs, or of the last one; 0: there was none.
  uint64_t stream() const { return past_.stream; }

  const ChannelTotals& totals() const { return totals_; }

  // Its state, apart from its ends and its queue.
  struct Past {
    ChannelTerms terms;
    uint64_t stream = 0;
    uint64_t sent = 0;               // sequence of the last share
    uint64_t taken = 0;              // sequence of the last share when the queue was taken
    uint64_t notified_receiver = 0;  // number of the last notice that a receiver got
    ChannelEndId closed{};           // the end that was closed last
    uint64_t received = 0;           // shares, by calls, by ends that were closed
    bool had_receivers = false;
    bool begun = false;    // a share was sent
    bool drained = false;  // since the last stream ended
    bool missing = false;  // shares were lost since the last notice to receivers
    Run run{};             // of the channel
    Notices to_receivers;
    Notices to_senders;
  };
  const Past& past() const { return past_; }

  // Restores the previous daemon's channel. Called in this order (recovery/channel_recovery.cc).
  void Restore(Past past, uint64_t dropped);
  void RestoreEnd(Member member);
  // The end has received or sent a share of this sequence.
  void RestoreSent(uint64_t sequence);
  void RestoreReceived(ChannelEndId receiver, uint64_t sequence);
  // `waiting`: in order. Returns the shares that wait no longer.
  std::vector<Share*> RestoreQueue(const std::vector<Share*>& waiting);
  void RestoreTotals(uint64_t received_by_open);

  // The first call that states one of the terms sets it; `by` names the end in refusals of later ones.
  // FAILED_PRECONDITION: CHANNEL_CAPACITY, the capacity is set to another number; CHANNEL_MODE, the mode or what goes
  // with it is another, or the first share was sent.
  Status Agree(const ChannelTerms& stated, const std::string& by);
  // The channel is in the run that the next end states. True: in another one before.
  bool Enter(const Run& run);
  // Returns the number of the last notice that precedes this end: it gets the later ones.
  uint64_t Open(Member member);
  // Closes an end that has received so many shares by calls. `end`: the notice for the other ends, without its position
  // and stream. REQUIRES: it is open.
  void Close(ChannelEndId id, Notice end, uint64_t received = 0);

  // Shares that were sent are lost: the notice of the sender says so.
  void MissSome() { past_.missing = true; }

  // A notice that the caller has not seen, as ToReceiver or ToSender words it; OK: there is none. `seen`: the number of
  // the last notice that the caller has seen. A receiver gets a notice when the shares before it have been received.
  Status NoticeTo(ChannelEndId end, uint64_t seen);
  // Whether a share may be sent now. RESOURCE_EXHAUSTED, CHANNEL_FULL. `from_direct`: the share was sent before on the
  // direct channel, and has room reserved.
  Status CheckSend(bool from_direct = false) const;
  // The next share for this receiver. NOT_FOUND, CHANNEL_EMPTY.
  Result<Share*> Next(ChannelEndId receiver) const;
  // Shares that wait for it.
  uint64_t waiting(const Member& receiver) const { return past_.sent - Passed(receiver); }
  // The oldest waiting share. REQUIRES: most_waiting() > 0.
  const Share& oldest() const { return *queue_[queue_.size() - most_waiting()]; }

  // The sequence of the next share.
  uint64_t next_sequence() const { return past_.sent + 1; }
  // So many shares were sent. `more` of them passed through the direct channel, to the one receiver.
  void PassedDirectly(uint64_t sent, uint64_t more);
  // Adds the share to the end of the queue. Afterwards, call TakePassed.
  void Push(Share& share);
  // The receiver has received what Next says. Afterwards, call TakePassed.
  void Receive(ChannelEndId receiver);
  // The receiver of a broadcast goes on without what Next says. Afterwards, call TakePassed.
  void Miss(ChannelEndId receiver);
  // The receiver's session did not get a share that this end has received. Another receiver of a queue gets it, if this
  // one has closed. A receiver of a broadcast misses it, if it has received later ones.
  void PutBack(ChannelEndId receiver, Share& share, uint64_t sequence);
  // Takes the shares that no receiver waits for and that are not kept for new ones. They count as queued until their
  // new owner changes that.
  std::deque<Share*> TakePassed();
  // Takes all shares likewise; receivers miss them. `drained`: no later receiver is told that the last stream
  // has ended.
  std::deque<Share*> TakeQueue(bool drained);

  // The direct channel on which the one sender and the one receiver pass shares without calls; null: there is none.
  std::shared_ptr<DirectChannelRecord> direct;
  uint32_t record = 0;  // in the journal
  // Set while no end is open and awaits_receiver(): the channel waits for a receiver until then.
  std::optional<std::chrono::steady_clock::time_point> lingers_until;

 private:
  // No stream runs, and the last one was closed by its senders.
  bool ended_in_order() const;
  // Sequence of the last share that the receiver does not wait for.
  uint64_t Passed(const Member& receiver) const { return broadcasts() ? receiver.passed : past_.sent - queue_.size(); }
  void Drop(uint64_t more);
  void PushFront(Share& share);
  // The share begins to wait, or stops. The caller changes queue_.
  void CountIn(Share& share);
  void CountOut(Share& share);

  const ChannelId id_;
  Namespace* const ns_;
  uint64_t& queued_in_namespace_;
  ShareUses& uses_;
  ChannelTotals& of_all_;
  const std::string name_;
  std::vector<Member> members_;
  uint64_t senders_ = 0;
  uint64_t receivers_ = 0;
  Past past_;
  // The ends that have stated each of the terms in this life of the daemon, for errors.
  enum Term : uint8_t { kMode, kOnSlow, kReplay, kCapacity };
  std::array<std::string, 4> stated_by_;
  ChannelTotals totals_;
  std::deque<Share*> queue_;  // the last shares that were sent; the back of a broadcast's has the sequence past_.sent
  uint64_t queued_bytes_ = 0;
};

// An end that a session has open.
struct ChannelEnd {
  // More requests of one end are not answered, and their shares received and released, at no time.
  static constexpr size_t kRequestsKept = 4;

  Channel* channel = nullptr;
  ChannelRole role{};
  uint64_t received = 0;  // shares received so far by calls
  uint64_t shares = 0;    // shares sent or received so far, by calls or in direct channels that have ended

  // For the next daemon.
  uint32_t record = 0;                          // in the journal
  uint64_t request = 0;                         // the session's request that opened it; 0: unknown
  uint64_t seen = 0;                            // the last notice that is not for it
  uint64_t counted = 0;                         // the sequence of the last share, or the last lease, in `shares`
  std::array<uint64_t, kRequestsKept> sends{};  // requests that sent its last shares by calls

  // A share was sent by this request; 0: unknown.
  void NoteSent(uint64_t sequence, uint64_t by) {
    ++shares;
    counted = sequence;
    if (by == 0) return;
    std::rotate(sends.begin(), sends.end() - 1, sends.end());
    sends.front() = by;
  }
  void NoteReceived(LeaseId lease) {
    ++received;
    ++shares;
    counted = Number(lease);
  }
};

}  // namespace arraybridge::daemon
