#include "daemon/service/verbs.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/service/message_limits.h"
#include "daemon/service/messages.h"
#include "daemon/service/share_wire.h"
#include "proto/boundary/failpoint.h"
#include "proto/boundary/frame.h"

namespace arraybridge {
namespace {

// How soon to ask again for memory of which nobody tells that it came back.
constexpr std::chrono::milliseconds kUntoldMemoryLook{100};
constexpr size_t kReturnedMax = 64;                     // ranges that one answer brings back
constexpr std::chrono::milliseconds kLateAnswer{4000};  // of the failpoint: longer than its test's clients wait

std::span<const uint8_t> Octets(std::string_view bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

std::span<const uint64_t> Numbers(const google::protobuf::RepeatedField<uint64_t>& field) {
  return {field.data(), static_cast<size_t>(field.size())};
}

}  // namespace

Verbs::Verbs(const Config& config, Broker& broker, std::function<void()> allocated, NoGpu no_gpu)
    : config_(config),
      broker_(broker),
      allocated_(std::move(allocated)),
      started_(Clock::now()),
      here_(RunsAt::Here()),
      no_gpu_(std::move(no_gpu)),
      line_(config.limits),
      sweeper_(
          broker, slow_,
          [this] {
            heap_.Freed();
            ServeMemory(Lane::kShort);
            if (line_.waits_for_memory()) ServeMemorySoon(Lane::kLong);
          },
          [this](Sweeper::Look look) { return LookAtHolds(look); }),
      large_("ab-large"),
      slow_("ab-slow"),
      to_seal_(config.limits),
      sealer_("ab-seal"),
      news_([this] { SpreadNews(); }) {}

Verbs::~Verbs() {
  broker_.events().Stop();
  news_.join();
  large_.Stop();
}

Result<v1::OpenSessionResponse> Verbs::OpenSession(const v1::OpenSessionRequest& request, Peer peer) {
  AB_RETURN_IF_ERROR(CheckHello(config_.limits, request));
  AB_RETURN_IF_ERROR(CheckNotDraining());
  peer.client = request.client();
  peer.token = request.token();
  OfferHandles(request.capabilities(), here_, peer);
  if (config_.cuda_events) OfferEvents(request.capabilities(), peer);
  // Another host's numbers would look like ours.
  if (peer.process_id == 0 && !peer.is_remote()) peer.process_id = request.process_id();
  auto opened = broker_.OpenSession(std::move(peer));
  if (!opened.ok()) return opened.status();
  v1::OpenSessionResponse response;
  response.set_session(Number(opened->session));
  response.set_token(opened->token.data(), opened->token.size());
  response.set_protocol(kProtocolVersion);
  *response.mutable_server() = GetServerInfo();
  return response;
}

Result<v1::OpenSessionResponse> Verbs::Join(const v1::OpenSessionRequest& request, const Peer& peer) {
  AB_RETURN_IF_ERROR(CheckHello(config_.limits, request));
  const auto session = broker_.SessionOf(Octets(request.join()));
  const auto uid = session.ok() ? broker_.UidOf(*session) : Result<uint32_t>(session.status());
  if (!uid.ok() || *uid != peer.uid) return NotFound("no session has this token").Because("UNKNOWN_SESSION");
  v1::OpenSessionResponse response;
  response.set_session(Number(*session));
  response.set_protocol(kProtocolVersion);
  *response.mutable_server() = GetServerInfo();
  return response;
}

// In this order: who comes to wait after its waiters were dropped must hear that the session has gone.
void Verbs::EndSession(SessionId session, EndCause cause) {
  tallies_.CountEnd(cause);
  for (const auto& direct : broker_.DirectChannelsOf(session)) EndDirectChannel(direct);
  const std::vector<ChannelId> channels = broker_.EndSession(session);
  sweeper_.WatchHolds();
  line_.DropSession(session);
  to_seal_.DropSession(session);
  for (const ChannelId channel : channels) ServeChannel(channel);
  sweeper_.Soon();
  sweeper_.After(config_.orphan_grace);
  heap_.Freed();
}

Result<Answer<v1::MappedResponse>> Verbs::Mapped(const Caller& caller, const v1::MappedRequest& request) {
  if (request.direct_channel_of() != 0) return DirectChannelMapped(caller, ChannelEndId{request.direct_channel_of()});
  const auto seal = [&] {
    if (request.arena() != 0) return broker_.Mapped(caller.session, ArenaId{request.arena()});
    if (!request.holds_of().empty()) return broker_.HoldsMapped(caller.session, request.holds_of());
    return broker_.Mapped(caller.session, ArenaId{});
  };
  AB_RETURN_IF_ERROR(seal());
  return Answer<v1::MappedResponse>{};
}

Result<PublishedShare> Verbs::Enter(SessionId session, const PublishAsked& asked) {
  AB_RETURN_IF_ERROR(CheckNotDraining());
  AB_RETURN_IF_ERROR(CheckPublish(config_.limits, asked));
  auto published = broker_.Publish(session, CallOf(asked));
  if (published.ok() && published->sweep_at) sweeper_.At(*published->sweep_at);
  return published;
}

Result<Answer<v1::PublishResponse>> Verbs::Publish(const Caller& caller, const PublishAsked& asked) {
  ServeQueued(caller.session, asked.ns);
  auto published = Enter(caller.session, asked);
  if (!published.ok()) return published.status();
  if (asked.fence_kind != 0 && Failpoint("late_answer")) std::this_thread::sleep_for(kLateAnswer);
  if (line_.waits_for_names()) TellWhoWaitsFor(caller.session, asked.ns, published->name);
  if (asked.replace) Reclaim();  // the name's former bytes may be nobody's now
  return Told(caller, *std::move(published));
}

Answer<v1::PublishResponse> Verbs::Told(const Caller& caller, PublishedShare published) {
  Answer<v1::PublishResponse> answer;
  answer.message.set_share(Number(published.share));
  answer.message.set_name(std::move(published.name));
  answer.message.set_generation(published.generation);
  answer.message.set_immutability(ToMessage(published.immutability));
  AddReturned(caller, answer.message.mutable_returned());
  return answer;
}

Result<Answer<v1::ExportResponse>> Verbs::Export(const Caller& caller, const v1::ExportRequest& request) {
  auto handle = broker_.Export(caller.session, ArenaId{request.arena()}, request.arena_generation(),
                               ChannelEndId{request.direct_channel_of()});
  if (!handle.ok()) return handle.status();
  Answer<v1::ExportResponse> answer;
  Fill(answer.message.mutable_handle(), *handle);
  auto handed = HandOver(caller, *handle, Access::kRead);
  if (!handed.ok()) return handed.status();
  if (handed->ticket) *answer.message.mutable_ticket() = *std::move(handed->ticket);
  answer.descriptor = std::move(handed->descriptor);
  return answer;
}

// Where it opens events it opens them for what others wait for already: that stays.
Status Verbs::OfferAnew(const Caller& caller, const v1::ClientCapabilities& capabilities) {
  auto peer = broker_.PeerOf(caller.session);
  if (!peer.ok()) return peer.status();
  OfferHandles(capabilities, here_, *peer);
  broker_.OfferAnew(caller.session, *std::move(peer));
  return Ok();
}

Result<Answer<v1::ReleaseResponse>> Verbs::Release(const Caller& caller, const v1::ReleaseRequest& request) {
  AB_RETURN_IF_ERROR(CheckRelease(request));
  AB_RETURN_IF_ERROR(CheckCapabilities(request.capabilities()));
  auto released = broker_.Release(caller.session, Numbers(request.leases()), Numbers(request.arenas()),
                                  Numbers(request.unmapped()));
  if (!released.ok()) return released.status();
  broker_.ForgetDirectChannels(caller.session, Numbers(request.direct_channels()));
  // What cannot be noted is not: nobody may hear of it, and what is given back beside it comes first.
  uint64_t notes = 0;
  for (const v1::ShareNote& note : request.notes()) {
    if (++notes > config_.limits.names_per_request) break;
    if (!CheckNote(config_.limits, note.note()).ok()) continue;
    broker_.Renote(caller.session, ShareId{note.share()}, note.note());
  }
  if (request.holds()) sweeper_.HoldEnded(caller.session);
  Answer<v1::ReleaseResponse> answer;
  AB_RETURN_IF_ERROR(EndFences(caller, request, &answer.message));
  if (request.unmapped().empty()) {
    Reclaim();
  } else {
    sweeper_.Soon();  // it may have been the last that held what is dying
  }
  if (request.has_capabilities()) AB_RETURN_IF_ERROR(OfferAnew(caller, request.capabilities()));
  answer.message.set_released(released->released);
  AddReturned(caller, answer.message.mutable_returned());
  return answer;
}

Status Verbs::EndFences(const Caller& caller, const v1::ReleaseRequest& request, v1::ReleaseResponse* response) {
  if (request.done().empty() && request.lost().empty()) return Ok();
  const auto ended = broker_.EndFences(caller.session, Numbers(request.done()), Numbers(request.lost()));
  if (!ended.ok()) return ended.status();
  response->mutable_awaited()->Add(ended->awaited.begin(), ended->awaited.end());
  if (!line_.waits_for_names()) return Ok();
  for (const auto& facts : ended->finished) TellWhoWaitsFor(caller.session, facts->ns, facts->name);
  return Ok();
}

Result<Answer<v1::WithdrawResponse>> Verbs::Withdraw(const Caller& caller, const v1::WithdrawRequest& request) {
  AB_RETURN_IF_ERROR(CheckNamespace(config_.limits, request.namespace_()));
  const std::vector<ShareKey> shares = FromMessage(request.shares());
  AB_RETURN_IF_ERROR(CheckShares(config_.limits, shares));
  ServeQueued(caller.session, request.namespace_());
  const auto withdrawn = broker_.Withdraw(caller.session, request.namespace_(), shares);
  Reclaim();  // also when one name was missing: the others are gone
  if (!withdrawn.ok()) return withdrawn.status();
  Answer<v1::WithdrawResponse> answer;
  answer.message.set_withdrawn(*withdrawn);
  AddReturned(caller, answer.message.mutable_returned());
  return answer;
}

Result<Answer<v1::BrowseResponse>> Verbs::Browse(const Caller& caller, const v1::BrowseRequest& request) {
  if (!caller.hears) return Answer<v1::BrowseResponse>{};
  AB_RETURN_IF_ERROR(CheckNotDraining());
  AB_RETURN_IF_ERROR(CheckNamespace(config_.limits, request.namespace_()));
  auto descriptors = Exported(caller, request);
  if (!descriptors.ok()) return descriptors.status();
  Answer<v1::BrowseResponse> answer;
  answer.descriptor = PassedFd(*std::move(descriptors), FdKind::kPages);
  return answer;
}

Result<std::vector<UniqueFd>> Verbs::Exported(const Caller& caller, const v1::BrowseRequest& request) {
  if (request.part() == v1::BrowseRequest::QUEUE) return broker_.OpenQueueOf(caller.session, request.namespace_());
  if (request.part() == v1::BrowseRequest::DIRECT_CHANNEL) {
    return broker_.ExportDirectChannel(caller.session, ChannelEndId{request.channel()});
  }
  auto one = request.part() == v1::BrowseRequest::HOLDS ? broker_.ExportHolds(caller.session, request.namespace_())
                                                        : broker_.ExportCatalogue(caller.session, request.namespace_());
  if (!one.ok()) return one.status();
  std::vector<UniqueFd> descriptors;
  descriptors.push_back(*std::move(one));
  return descriptors;
}

Result<Answer<v1::RedeemResponse>> Verbs::Redeem(const Caller& caller, const v1::RedeemRequest& request) {
  auto redeemed = broker_.Redeem(caller.session, Octets(request.token()));
  if (!redeemed.ok()) return redeemed.status();
  Answer<v1::RedeemResponse> answer;
  Fill(answer.message.mutable_handle(), redeemed->handle);
  answer.message.set_writable(redeemed->writable);
  answer.descriptor = PassedFd(std::move(redeemed->handle.descriptor), redeemed->handle.kind);
  return answer;
}

void Verbs::TellWhoWaitsFor(SessionId maker, std::string_view ns, std::string_view name) {
  const auto owner = broker_.OwnerOf(maker, ns, Right::kRead);
  if (owner.ok()) line_.NamePublished(*owner, NamespaceNameOf(ns), name);
}

void Verbs::SetCut(Door door, std::function<void(SessionId, std::string_view why)> cut) {
  const MutexLock lock(cut_mutex_);
  cut_[static_cast<size_t>(door)] = std::move(cut);
}

bool Verbs::LookAtHolds(Sweeper::Look look) {
  if (!broker_.holds_waiting()) return false;
  const Broker::Looked looked = look == Sweeper::Look::kAll ? broker_.LookAtHolds() : broker_.LookOn();
  if (looked.freed > 0) Reclaim();
  for (const SessionId session : looked.over_limit) {
    Cut(session, "holds withdrawn bytes beyond limits.pinned_bytes_per_session");
  }
  return looked.more;
}

Status Verbs::CutSession(SessionId session, std::string_view why) {
  if (!broker_.UidOf(session).ok()) return NotFound("no session ", Number(session)).Because("SESSION_ENDED");
  Cut(session, why);
  return Ok();
}

void Verbs::Trim(std::optional<Device> only, std::function<void(Result<uint64_t> freed_bytes)> done) {
  slow_.Post([this, only = std::move(only), done = std::move(done)] {
    const uint64_t swept = only ? 0 : sweeper_.SweepNow().freed_bytes;
    const auto cached = broker_.Trim(only);
    // What was swept may have been cached, and is counted once.
    done(cached.ok() ? Result<uint64_t>(std::max(swept, *cached)) : cached);
    LimitsChanged();
  });
}

void Verbs::Cut(SessionId session, std::string_view why) {
  const MutexLock lock(cut_mutex_);
  for (const auto& cut : cut_) {
    if (cut) cut(session, why);
  }
}

Broker::Adopted Verbs::ConfigurationChanged() {
  Broker::Adopted adopted = broker_.AdoptNamespaces();
  for (const SessionId session : adopted.without_right) Cut(session, "what it has is not for it any more");
  sweeper_.Soon();
  return adopted;
}

void Verbs::Reclaim() {
  sweeper_.WatchHolds();
  if (broker_.sweep_wanted() || line_.waits_for_memory()) sweeper_.Soon();
}

void Verbs::ServeMemory(Lane lane) {
  if (line_.ServeMemory(lane)) ServeMemorySoon(Other(lane));
}

// Many who come, one task: it serves all who stand in the line when it begins.
void Verbs::ServeMemorySoon(Lane lane) {
  std::atomic<bool>& posted = serve_posted_[static_cast<size_t>(lane)];
  if (posted.exchange(true)) return;
  (lane == Lane::kLong ? large_ : slow_).Post([this, lane, &posted] {
    posted.store(false);
    ServeMemory(lane);
  });
}

void Verbs::ServeMemoryLater(Lane lane) {
  std::atomic<bool>& posted = look_posted_[static_cast<size_t>(lane)];
  if (posted.exchange(true)) return;
  (lane == Lane::kLong ? large_ : slow_).PostAt(Clock::now() + kUntoldMemoryLook, [this, lane, &posted] {
    posted.store(false);
    ServeMemory(lane);
  });
}

void Verbs::Drain() {
  draining_.store(true);
  line_.ExpireAll();
  to_seal_.ExpireAll();
}

void Verbs::WaitIdle(Clock::time_point deadline) {
  sealer_.WaitIdle(deadline);
  for (int turn = 0; turn < 2; ++turn) {  // each may have something for the other
    slow_.WaitIdle(deadline);
    large_.WaitIdle(deadline);
  }
  slow_.WaitIdle(deadline);
}

Status Verbs::CheckNotDraining() const {
  if (!draining()) return Ok();
  return Unavailable("the broker is draining").Because("DRAINING");
}

Result<Waiter> Verbs::WaiterOf(const Caller& caller, uint64_t bytes) const {
  const auto uid = broker_.UidOf(caller.session);
  if (!uid.ok()) return uid.status();
  Waiter waiter;
  waiter.session = caller.session;
  waiter.uid = *uid;
  waiter.bytes = bytes;
  return waiter;
}

Clock::time_point Verbs::DeadlineOf(uint64_t timeout_ms) const {
  const auto most = static_cast<uint64_t>(config_.limits.request_timeout_max.get().count());
  return Clock::now() + std::chrono::milliseconds(std::min(timeout_ms, most));
}

Result<v1::Ticket> Verbs::TicketFor(SessionId session, ArenaId arena, Access access) {
  const auto token = broker_.IssueTicket(session, arena, access);
  if (!token.ok()) return token.status();
  sweeper_.After(config_.limits.ticket_lifetime);
  v1::Ticket ticket;
  ticket.set_token(token->data(), token->size());
  ticket.set_lifetime_ms(static_cast<uint64_t>(config_.limits.ticket_lifetime.get().count()));
  return ticket;
}

Result<Verbs::Handed> Verbs::HandOver(const Caller& caller, Handle& handle, Access access) {
  Handed handed;
  if (caller.door == Door::kLifeline) {
    handed.descriptor = PassedFd(std::move(handle.descriptor), handle.kind);
    return handed;
  }
  if (!handle.descriptor.valid()) return handed;
  auto ticket = TicketFor(caller.session, ArenaId{handle.arena}, access);
  if (!ticket.ok()) return ticket.status();
  handed.ticket = *std::move(ticket);
  return handed;
}

void Verbs::AddReturned(const Caller& caller, google::protobuf::RepeatedPtrField<v1::Range>* returned) {
  if (!caller.hears) return;  // the next answer brings them
  for (const RangeOfArena& range : broker_.TakeReturned(caller.session, kReturnedMax)) {
    v1::Range* message = returned->Add();
    message->set_arena(Number(range.arena));
    message->set_offset(range.offset);
    message->set_size(range.size);
  }
}

}  // namespace arraybridge
