// Verbs is where a message becomes a call of the Broker and its result a message again: one function a verb, serving
// both doors. Every limit on a message is checked here. A door adds only how bytes travel.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/open_queue.h"
#include "daemon/config/config.h"
#include "daemon/service/acquire_wire.h"
#include "daemon/service/handle_offer.h"
#include "daemon/service/heap_trimmer.h"
#include "daemon/service/passed_fd.h"
#include "daemon/service/publish_wire.h"
#include "daemon/service/sweeper.h"
#include "daemon/service/tallies.h"
#include "daemon/service/traffic.h"
#include "daemon/service/waiting_line.h"
#include "daemon/service/worker.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Who asks, and at which door: a lifeline gets descriptors, gRPC gets tickets for them.
struct Caller {
  SessionId session{};
  Door door = Door::kLifeline;
  bool hears = true;  // false: it wants no answer, so nothing must be handed to it in one
  // Tells it that work of its own request gets further; on any thread. Empty: it does not want to know.
  std::function<void()> progress{};
};

template <class Message>
struct Answer {
  Message message;
  PassedFd descriptor;  // one or several, on a lifeline; always invalid at the gRPC door
};

// Called exactly once, on any thread, maybe before the verb returns; not at all after Cancel or the session's end.
template <class Message>
using Reply = std::function<void(Result<Answer<Message>>)>;

// Why no GPU is served, for those who ask. Empty: some are.
struct NoGpu {
  std::string why;
  RefusalCause cause{};
};

// Thread-safe. Its threads: one for what may destroy or populate a little, one for what populates much, one for seals
// that may sleep, and the lines' for deadlines.
class Verbs {
 public:
  // `allocated` runs after an arena was given out: who keeps warm blocks refills then. It must not block.
  Verbs(const Config& config, Broker& broker, std::function<void()> allocated, NoGpu no_gpu = {});
  ~Verbs();
  Verbs(const Verbs&) = delete;
  Verbs& operator=(const Verbs&) = delete;

  v1::GetServerInfoResponse GetServerInfo() const;
  // FAILED_PRECONDITION names both protocol ranges if they do not meet.
  Result<v1::OpenSessionResponse> OpenSession(const v1::OpenSessionRequest& request, Peer peer);
  // A lifeline joins the session that this token names, to redeem its tickets. NOT_FOUND unless it is the same uid's.
  Result<v1::OpenSessionResponse> Join(const v1::OpenSessionRequest& request, const Peer& peer);
  // Ends it in the broker, drops its waiters, asks for a sweep.
  void EndSession(SessionId session, EndCause cause = EndCause::kClean);

  WaiterId Allocate(const Caller& caller, const v1::AllocateRequest& request, const Reply<v1::AllocateResponse>& reply);
  Result<Answer<v1::MappedResponse>> Mapped(const Caller& caller, const v1::MappedRequest& request);
  Result<Answer<v1::PublishResponse>> Publish(const Caller& caller, const PublishAsked& asked);
  // For a request that says `sealed`: the kernel may sleep over that seal. It has no place in the line to cancel.
  WaiterId PublishSealed(const Caller& caller, const PublishAsked& asked, const Reply<v1::PublishResponse>& reply);
  WaiterId Acquire(const Caller& caller, const AcquireAsked& asked, const Reply<v1::AcquireResponse>& reply);
  // Channels (verbs_channel.cc).
  Result<Answer<v1::OpenChannelResponse>> OpenChannel(const Caller& caller, const v1::OpenChannelRequest& request);
  Result<Answer<v1::CloseChannelResponse>> CloseChannel(const Caller& caller, const v1::CloseChannelRequest& request);
  // A Publish that names a channel.
  WaiterId Send(const Caller& caller, const PublishAsked& asked, const Reply<v1::PublishResponse>& reply);
  WaiterId Receive(const Caller& caller, const v1::ReceiveRequest& request, const Reply<v1::AcquireResponse>& reply);
  // As AcquireAtOnce. Not if others wait there: then it is not this caller's turn.
  Result<PassedFd> ReceiveAtOnce(const Caller& caller, const v1::ReceiveRequest& request, std::string* response);
  static bool MayArrive(const Status& refusal);
  WaiterId ReceiveLater(const Caller& caller, const v1::ReceiveRequest& request,
                        const Reply<v1::AcquireResponse>& reply);

  // What Acquire answers without waiting, as the bytes of a v1.AcquireResponse; the descriptor rides along on a
  // lifeline. The caller waits if it wants to and MayCome says so of the refusal.
  Result<PassedFd> AcquireAtOnce(const Caller& caller, const AcquireAsked& asked, std::string* response);
  // `timeout_ms`: how long the request would wait for a name. Bytes that are being made right now are always waited
  // for.
  static bool MayCome(const Status& refusal, uint64_t timeout_ms);
  Result<Answer<v1::ExportResponse>> Export(const Caller& caller, const v1::ExportRequest& request);
  Result<Answer<v1::ReleaseResponse>> Release(const Caller& caller, const v1::ReleaseRequest& request);
  Result<Answer<v1::WithdrawResponse>> Withdraw(const Caller& caller, const v1::WithdrawRequest& request);
  Result<Answer<v1::ListResponse>> List(const Caller& caller, const v1::ListRequest& request);
  // The same of all users, for an administrator.
  Result<v1::ListResponse> ListEverybodys(const v1::ListRequest& request);
  // The numbers alone, for whoever watches the daemon from inside.
  v1::GetStatsResponse Stats() const { return Stats(broker_.TakeSnapshot()); }
  v1::GetStatsResponse Stats(const Snapshot& snapshot) const;
  Clock::time_point started() const { return started_; }
  // The descriptor rides along: for lifelines only.
  Result<Answer<v1::BrowseResponse>> Browse(const Caller& caller, const v1::BrowseRequest& request);
  Result<Answer<v1::GetStatsResponse>> GetStats(const Caller& caller, const v1::GetStatsRequest& request);
  // Watching (verbs_watch.cc). Opens a watch, or answers with what has come to an open one, and waits for that.
  WaiterId Watch(const Caller& caller, const v1::WatchRequest& request, const Reply<v1::WatchResponse>& reply);
  // False: it is not open.
  bool CloseWatch(const Caller& caller, WatcherId watcher);
  Result<Answer<v1::InspectResponse>> Inspect(const Caller& caller, const v1::InspectRequest& request);
  // Session queues (verbs_queue.cc). Serves unwaited publishes, at most `most`; how many. A session that wrote what
  // cannot be is cut. `others`: what happens to other requests between them.
  uint64_t ServePublishes(const OpenQueue& of, uint64_t most, SessionQueue::Others others);
  std::optional<OpenQueue> FindQueue(SessionId session) const { return broker_.QueueOf(session); }
  // Sending without calls (verbs_direct.cc). Null: there is none. When it returns the direct channel has ended, and
  // what stood there is queued.
  void EndDirectChannel(const std::shared_ptr<const DirectChannelRecord>& of);
  // Undoes what an answer granted that its caller will never hear. Whatever has gone meanwhile is no failure.
  void TakeBack(const Caller& caller, const v1::AllocateResponse& granted);
  void TakeBack(const Caller& caller, const v1::AcquireResponse& granted);
  void TakeBack(const Caller& caller, const v1::ExportResponse& granted);
  Result<Answer<v1::RedeemResponse>> Redeem(const Caller& caller, const v1::RedeemRequest& request);
  // The caller went away: its reply is dropped. Without effect on one that is being answered.
  void Cancel(WaiterId waiter) { line_.Cancel(waiter); }

  // Somebody waits for memory that this user may hold: answers ask clients to give back what they do not use.
  bool memory_wanted(uint32_t uid) const { return line_.wanted(uid); }
  // From now on new work is answered UNAVAILABLE, who waits too; Release, Withdraw and reads still work.
  void Drain();
  // Returns when what the slow threads had to do is done, or at `deadline`.
  void WaitIdle(Clock::time_point deadline);
  bool draining() const { return draining_.load(std::memory_order_relaxed); }
  // A quota is another one, or names have gone: who waits for memory may fit now.
  void LimitsChanged() { sweeper_.Soon(); }
  // Limits, quotas or rights are others than they were: who waits for memory may fit now, and who has what is not for
  // it any more has ended.
  Broker::Adopted ConfigurationChanged();
  // What the doors count.
  Traffic& traffic() { return traffic_; }
  const Traffic& traffic() const { return traffic_; }
  const Tallies& tallies() const { return tallies_; }
  // Its door ends it soon. NOT_FOUND.
  Status CutSession(SessionId session, std::string_view why);
  // Gives cached memory back to the system, and what nobody names any more; tells how many bytes, on another thread.
  // `only`: what is cached of this device alone; NOT_FOUND: it is not served.
  void Trim(std::optional<Device> only, std::function<void(Result<uint64_t> freed_bytes)> done);
  // The door's part of ending a session that keeps too much from others, or what is not for it; called on any thread
  // for sessions of either door, must not block. Nothing: that door has gone.
  void SetCut(Door door, std::function<void(SessionId, std::string_view why)> cut) AB_EXCLUDES(cut_mutex_);
  // A door has answered with an error.
  void CountRefusal(SessionId session, Verb verb, const Status& refusal);
  void CountRefusal(const Peer& peer, Verb verb, const Status& refusal);
  void CountRefusal() { refusals_.fetch_add(1, std::memory_order_relaxed); }
  void CountCut() { cuts_.fetch_add(1, std::memory_order_relaxed); }

 private:
  class Pending;  // an Allocate on its way

  Status CheckNotDraining() const;
  // Of a request that may wait: whose it is, and what it keeps in memory while it does.
  Result<Waiter> WaiterOf(const Caller& caller, uint64_t bytes) const;
  Clock::time_point DeadlineOf(uint64_t timeout_ms) const;
  // Leases as the bytes of an AcquireResponse, and their descriptor. What cannot be told is taken back.
  Result<PassedFd> Told(const Caller& caller, AcquiredShares acquired, std::string* response);
  Result<Answer<v1::AcquireResponse>> ReceiveMessage(const Caller& caller, const v1::ReceiveRequest& request);
  Answer<v1::PublishResponse> Told(const Caller& caller, PublishedShare published);
  // What every Publish is, whichever way it came.
  Result<PublishedShare> Enter(SessionId session, const PublishAsked& asked);
  // Serves the unwaited publishes that stand in the queues of this namespace, or of all of the user's: a name is there
  // from the moment that its request stands in one. False: nothing stood in any.
  bool ServeQueued(SessionId session, std::optional<std::string_view> ns);
  // The channel has a direct channel, which has to be revoked first, or polled.
  static bool IsDirectRefusal(const Status& refusal);
  bool PublishEntry(const DirectChannelRecord& of, const direct_channel::Entry& entry);
  Result<PublishedShare> PublishInto(const Caller& caller, const PublishCall& call);
  Result<Answer<v1::MappedResponse>> DirectChannelMapped(const Caller& caller, ChannelEndId end);
  Result<std::vector<UniqueFd>> Exported(const Caller& caller, const v1::BrowseRequest& request);
  // Something was sent, received or closed there: whose turn it is now is answered.
  void ServeChannel(ChannelId channel);
  // AcquireAtOnce without ServeQueued, which would call itself: a request that waits for a name is retried when it
  // comes.
  Result<PassedFd> AcquireNow(const Caller& caller, const AcquireAsked& asked, std::string* response);
  Status AppendTickets(SessionId session, const AcquiredShares& acquired, std::string* response);
  // The same bytes, read back: for gRPC, which wants a message, and for who has waited. INTERNAL: they cannot be read,
  // and what was leased is let go.
  Result<Answer<v1::AcquireResponse>> ReadAgain(const Caller& caller, const std::string& bytes, PassedFd descriptor);
  Result<Answer<v1::AcquireResponse>> AcquireMessage(const Caller& caller, const AcquireAsked& asked);
  Result<v1::WatchResponse> TakeEvents(const Caller& caller, WatcherId watcher);
  Result<v1::WatchResponse> OpenOrClose(const Caller& caller, const v1::WatchRequest& request);
  void SpreadNews();
  WaiterId AcquireLater(const Caller& caller, const AcquireAsked& asked, Status missing,
                        const Reply<v1::AcquireResponse>& reply);
  Result<v1::Ticket> TicketFor(SessionId session, ArenaId arena, Access access);
  // A lifeline gets the descriptor, gRPC a ticket for it; where opaque bytes are all it takes, neither.
  struct Handed {
    PassedFd descriptor;
    std::optional<v1::Ticket> ticket;
  };
  Result<Handed> HandOver(const Caller& caller, Handle& handle, Access access);
  void AddReturned(const Caller& caller, google::protobuf::RepeatedPtrField<v1::Range>* returned);
  // Something was let go: a sweep, unless it would find nothing and nobody waits for what came back.
  void Reclaim();
  // Looks which sessions still hold withdrawn bytes, ends those that hold too many. True: there is more to look at.
  bool LookAtHolds(Sweeper::Look look);
  void Cut(SessionId session, std::string_view why) AB_EXCLUDES(cut_mutex_);
  Result<v1::ListResponse> Listed(SessionId session, bool everybody, const v1::ListRequest& request);
  void TellWhoWaitsFor(SessionId maker, std::string_view ns, std::string_view name);
  Status OfferAnew(const Caller& caller, const v1::ClientCapabilities& capabilities);
  Status EndFences(const Caller& caller, const v1::ReleaseRequest& request, v1::ReleaseResponse* response);
  void ServeMemory(Lane lane);
  void ServeMemorySoon(Lane lane);
  // The same after a while, for what nobody tells of: others beside the broker's clients may give memory back.
  void ServeMemoryLater(Lane lane);

  const Config& config_;
  Broker& broker_;
  const std::function<void()> allocated_;
  const Clock::time_point started_;
  const RunsAt here_;
  const NoGpu no_gpu_;
  Traffic traffic_;
  Tallies tallies_;
  Mutex cut_mutex_;
  std::array<std::function<void(SessionId, std::string_view why)>, 2> cut_ AB_GUARDED_BY(cut_mutex_);  // by door
  std::atomic<bool> draining_{false};
  std::atomic<uint64_t> refusals_{0};
  std::atomic<uint64_t> cuts_{0};
  std::array<std::atomic<bool>, 2> serve_posted_{};  // by lane
  std::array<std::atomic<bool>, 2> look_posted_{};   // by lane
  WaitingLine line_;
  HeapTrimmer heap_{slow_};
  Sweeper sweeper_;
  Worker large_;  // stopped before slow_, whose tasks post to it and the other way round
  Worker slow_;   // its tasks use all of the above
  std::atomic<bool> seal_posted_{false};
  WaitingLine to_seal_;  // one of each user in turn
  Worker sealer_;        // last of the workers: what slow_ does must not wait for a seal
  std::thread news_;
};

}  // namespace arraybridge
