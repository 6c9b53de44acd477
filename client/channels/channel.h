// SPDX-License-Identifier: Apache-2.0
// A Channel::End is what the copies of a Channel share: an open end, on the session on which it was opened.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <arraybridge/broker.h>
#include <arraybridge/channel.h>

#include "client/direct_channels/direct_consumer.h"
#include "client/direct_channels/direct_pages.h"
#include "client/direct_channels/direct_producer.h"
#include "client/session/session.h"
#include "client/shares/placement.h"
#include "client/wire/codec.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class Channel::End : public std::enable_shared_from_this<End> {
 public:
  End(std::shared_ptr<Session> session, const Broker::Options& options, std::string name, Role role,
      const wire::OpenChannelResponse& opened);
  // Abandons it, unless it was closed.
  ~End();

  const std::string& name() const { return name_; }
  uint64_t capacity() const { return capacity_; }
  ChannelMode mode() const { return mode_; }

  Status Send(const Placement& placement, const SendOptions& options);
  uint64_t seen_notice() const { return seen_notice_.load(); }
  Status Check(PeerDeath on_peer_death, uint64_t* seen);
  bool TrySend(std::span<const View> sources, const SendOptions& options);
  Result<Acquired> Receive(const ReceiveOptions& options);
  std::optional<Result<Acquired>> TryReceive(MapMode mode);
  Status Close(bool complete);

  // Abandons an end that no Channel has. `deadline`: as for Lifeline::Post.
  static void AbandonById(Session& session, uint64_t channel, std::optional<Deadline> deadline);

 private:
  using Until = std::optional<Deadline>;

  static bool IsOver(const Until& until) { return until && std::chrono::steady_clock::now() >= *until; }
  bool is_inherited() const;
  Status CheckHere() const;
  Status Explain(Status failed) const;
  // Asks the broker for a share, which is kept then.
  Status Ask(std::chrono::milliseconds slice, uint64_t seen);
  // Whether the call goes on after this refusal: a peer was lost, and the caller waits for it to come back. Notes the
  // notice as seen, here and in `seen`.
  bool GoesOn(const Status& refusal, PeerDeath on_peer_death, uint64_t* seen);

  // Without calls (channel_direct.cc).
  // Asks for a direct channel before a call, once that is worth it; does not wait.
  void PrefetchDirect() AB_EXCLUDES(mutex_);
  void HandleDirect(Result<Answer> answer) AB_EXCLUDES(mutex_);
  void MapDirect(std::vector<UniqueFd> files, Sender sender) AB_REQUIRES(mutex_);
  // `ended`: the DirectProducer or DirectConsumer that has ended, or that this end does not use any more; nothing
  // happens if another thread has left it already. `tell`: the broker is to revoke it.
  void CloseDirect(const void* ended, bool tell) AB_EXCLUDES(mutex_);
  // The DirectProducer or DirectConsumer, open or not; null: it does not stand any more. A direct channel that was
  // revoked before both ends had mapped it is left here, because no entry in it would show that.
  template <class Direct>
  std::shared_ptr<Direct> Standing(std::shared_ptr<Direct> direct) AB_EXCLUDES(mutex_) {
    if (direct == nullptr || direct->opened() || direct->stands()) return direct;
    return CloseDirect(direct.get(), false), nullptr;
  }
  // An encoded description, and what it describes.
  struct Described {
    std::vector<codec::PublishedArray> arrays;
    std::string structure;
    std::string metadata;
    std::string encoded;
  };
  // Returns `last`, the previous description, if it describes these arrays, too: senders mostly repeat themselves.
  // Null: it is too long for an entry, or the broker would refuse it.
  std::shared_ptr<const Described> DescriptionOf(std::span<const View> arrays, Offsets offsets,
                                                 const SendOptions& options, std::shared_ptr<const Described> last)
      AB_EXCLUDES(mutex_);
  struct Sending {
    std::shared_ptr<DirectProducer> producer;  // open; null: none is
    std::shared_ptr<const Described> described;
  };
  Sending FindSending() AB_EXCLUDES(mutex_);
  DirectWait WaitOf(const Until& until) const;
  // Nothing: the share goes, or comes, by a call.
  std::optional<Status> SendDirect(const Placement& placement, const SendOptions& options, const Until& until);
  std::optional<Status> PutDirect(DirectProducer& producer, const std::function<DirectProducer::Outcome()>& put,
                                  const Until& until);
  // `received`: shares by calls, when there was no other to take.
  std::optional<Result<Acquired>> ReceiveDirect(const std::shared_ptr<DirectConsumer>& consumer, uint64_t received,
                                                const ReceiveOptions& options, const Until& until);
  // Takes the next entry. Nothing: `outcome` says why. With kLacksArena `entry` is the entry that was not taken.
  std::optional<Result<Acquired>> TakeDirect(const std::shared_ptr<DirectConsumer>& consumer, uint64_t received,
                                             MapMode mode, direct_channel::Entry* entry,
                                             DirectConsumer::Outcome* outcome);
  // The broker says that shares come by the direct channel, and that no share is left to come by a call.
  void CaughtUp(uint64_t counted) AB_EXCLUDES(mutex_);
  void CountReceived() AB_REQUIRES(mutex_);
  void Arrived(Result<Answer> answer);
  // A Receive finds this without a call.
  struct Waiting {
    bool behind = false;         // an earlier request has no answer yet
    std::optional<Answer> kept;  // taken
    std::shared_ptr<DirectConsumer> consumer;
    uint64_t received = 0;  // by calls
  };
  Waiting TakeWaiting() AB_EXCLUDES(mutex_);

  std::shared_ptr<Session> session_;
  const Broker::Options options_;
  const std::string name_;
  const Role role_;
  const uint64_t id_;
  const uint64_t capacity_;
  const ChannelMode mode_;
  const uint64_t forks_;  // of the process in which it was opened
  std::atomic<bool> closed_{false};
  std::atomic<uint64_t> seen_notice_;  // the last notice that a caller has got

  Mutex mutex_;
  uint64_t asking_ AB_GUARDED_BY(mutex_) = 0;      // requests whose answers are not counted yet
  uint64_t unanswered_ AB_GUARDED_BY(mutex_) = 0;  // requests whose caller has gone
  std::deque<Answer> kept_ AB_GUARDED_BY(mutex_);  // shares that arrived, in the order in which they were sent

  static constexpr uint64_t kAskMost = 256;
  uint64_t calls_ AB_GUARDED_BY(mutex_) = 0;      // shares sent or received without a direct channel
  uint64_t ask_with_ AB_GUARDED_BY(mutex_) = 1;   // the call before which it asks again
  uint64_t pause_ AB_GUARDED_BY(mutex_) = 1;      // calls until it asks again, doubling
  bool requested_ AB_GUARDED_BY(mutex_) = false;  // the answer is on its way, or there
  std::shared_ptr<DirectProducer> producer_ AB_GUARDED_BY(mutex_);
  std::shared_ptr<DirectConsumer> consumer_ AB_GUARDED_BY(mutex_);
  uint64_t received_ AB_GUARDED_BY(mutex_) = 0;  // by calls
  bool revoke_ AB_GUARDED_BY(mutex_) = false;    // the broker is to revoke it
  std::shared_ptr<const Described> described_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
