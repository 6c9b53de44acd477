#include "daemon/service/verbs.h"

#include <algorithm>
#include <fstream>
#include <utility>
#include <vector>

#include "daemon/service/message_limits.h"
#include "daemon/service/messages.h"
#include "proto/boundary/frame.h"

namespace arraybridge {
namespace {

constexpr size_t kReturnedMax = 64;     // ranges that one answer brings back
constexpr uint32_t kPageRowsMax = 512;  // before bytes are looked at

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::string_view Bytes(const Token& token) { return {reinterpret_cast<const char*>(token.data()), token.size()}; }

std::span<const uint8_t> Octets(std::string_view bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

std::span<const uint64_t> Numbers(const google::protobuf::RepeatedField<uint64_t>& field) {
  return {field.data(), static_cast<size_t>(field.size())};
}

size_t AnswerBytesMax(const Config& config) {
  return std::min<size_t>(config.limits.frame_bytes_max, kFrameBytesMax) - sizeof(FrameHeader);
}

}  // namespace

Verbs::Verbs(const Config& config, Broker& broker, std::function<void()> allocated)
    : config_(config),
      broker_(broker),
      allocated_(std::move(allocated)),
      started_(Clock::now()),
      boot_id_(BootId()),
      line_(config.limits),
      sweeper_(broker, slow_, [this] { line_.ServeMemory(); }),
      slow_("ab-slow") {}

v1::GetServerInfoResponse Verbs::GetServerInfo() const {
  v1::GetServerInfoResponse info;
  info.set_version(ARRAYBRIDGE_VERSION);
  info.set_broker_id(std::string(Bytes(broker_.broker_id())));
  info.set_protocol_min(kProtocolVersion);
  info.set_protocol_max(kProtocolVersion);
  info.set_boot_id(boot_id_);
  const auto uptime = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started_);
  info.set_uptime_ms(static_cast<uint64_t>(uptime.count()));
  Fill(info.mutable_limits(), config_);
  for (const DeviceFacts& device : broker_.Devices()) Fill(info.add_devices(), device);
  info.add_capabilities("tickets");
  info.set_draining(draining());
  return info;
}

Result<v1::OpenSessionResponse> Verbs::OpenSession(const v1::OpenSessionRequest& request, Peer peer) {
  AB_RETURN_IF_ERROR(CheckHello(config_.limits, request));
  AB_RETURN_IF_ERROR(CheckNotDraining());
  peer.client = request.client();
  peer.kinds = KindsOf(request.capabilities());
  if (peer.process_id == 0) peer.process_id = request.process_id();
  auto opened = broker_.OpenSession(std::move(peer));
  if (!opened.ok()) return opened.status();
  v1::OpenSessionResponse response;
  response.set_session(Number(opened->session));
  response.set_token(std::string(Bytes(opened->token)));
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

void Verbs::EndSession(SessionId session, EndCause cause) {
  line_.DropSession(session);
  broker_.EndSession(session, cause);
  sweeper_.Soon();
  sweeper_.After(config_.orphan_grace);
}

Result<Answer<v1::MappedResponse>> Verbs::Mapped(const Caller& caller, const v1::MappedRequest& request) {
  AB_RETURN_IF_ERROR(broker_.Mapped(caller.session, ArenaId{request.arena()}));
  return Answer<v1::MappedResponse>{};
}

Result<Answer<v1::PublishResponse>> Verbs::Publish(const Caller& caller, v1::PublishRequest& request) {
  AB_RETURN_IF_ERROR(CheckNotDraining());
  AB_RETURN_IF_ERROR(CheckPublish(config_.limits, request));
  PublishCall call;
  call.ns = request.namespace_();
  call.name = request.name();
  call.arena = ArenaId{request.arena()};
  call.arena_generation = request.arena_generation();
  call.offset = request.offset();
  call.size = request.size();
  call.specs = request.specs().SerializeAsString();
  call.structure = std::move(*request.mutable_structure());
  call.metadata = std::move(*request.mutable_metadata());
  call.fence_kind = static_cast<uint32_t>(request.fence().kind());
  call.fence = request.fence().opaque();
  call.replace = request.replace();
  call.sealed = request.sealed();
  auto published = broker_.Publish(caller.session, std::move(call));
  if (!published.ok()) return published.status();
  line_.NamePublished(request.namespace_(), published->name);
  if (request.replace()) sweeper_.Soon();  // the name's former bytes may be nobody's now
  Answer<v1::PublishResponse> answer;
  answer.message.set_share(Number(published->share));
  answer.message.set_name(std::move(published->name));
  answer.message.set_generation(published->generation);
  answer.message.set_immutability(ToMessage(published->immutability));
  AddReturned(caller.session, &answer.message);
  return answer;
}

Result<Answer<v1::ExportResponse>> Verbs::Export(const Caller& caller, const v1::ExportRequest& request) {
  auto handle = broker_.Export(caller.session, ArenaId{request.arena()}, request.arena_generation());
  if (!handle.ok()) return handle.status();
  Answer<v1::ExportResponse> answer;
  AB_RETURN_IF_ERROR(Hand(caller, *std::move(handle), Access::kRead, &answer));
  return answer;
}

Result<Answer<v1::ReleaseResponse>> Verbs::Release(const Caller& caller, const v1::ReleaseRequest& request) {
  AB_RETURN_IF_ERROR(CheckRelease(config_.limits, request));
  auto released = broker_.Release(caller.session, Numbers(request.leases()), Numbers(request.arenas()),
                                  Numbers(request.unmapped()));
  if (!released.ok()) return released.status();
  sweeper_.Soon();
  Answer<v1::ReleaseResponse> answer;
  answer.message.set_released(released->released);
  AddReturned(caller.session, &answer.message);
  return answer;
}

Result<Answer<v1::WithdrawResponse>> Verbs::Withdraw(const Caller& caller, const v1::WithdrawRequest& request) {
  AB_RETURN_IF_ERROR(CheckNamespace(config_.limits, request.namespace_()));
  AB_RETURN_IF_ERROR(CheckRefs(config_.limits, request.shares()));
  const auto withdrawn = broker_.Withdraw(caller.session, request.namespace_(), FromMessage(request.shares()));
  sweeper_.Soon();  // also when one name was missing: the others are gone
  if (!withdrawn.ok()) return withdrawn.status();
  Answer<v1::WithdrawResponse> answer;
  answer.message.set_withdrawn(*withdrawn);
  AddReturned(caller.session, &answer.message);
  return answer;
}

Result<Answer<v1::GetStatsResponse>> Verbs::GetStats(const Caller&, const v1::GetStatsRequest&) {
  Answer<v1::GetStatsResponse> answer;
  Fill(&answer.message, broker_.TakeSnapshot());
  answer.message.set_waiting(line_.waiting());
  for (const DeviceFacts& device : broker_.Devices()) Fill(answer.message.add_devices(), device);
  answer.message.set_refusals_total(refusals_.load(std::memory_order_relaxed));
  answer.message.set_sessions_cut_total(cuts_.load(std::memory_order_relaxed));
  return answer;
}

Result<Answer<v1::RedeemResponse>> Verbs::Redeem(const Caller& caller, const v1::RedeemRequest& request) {
  auto redeemed = broker_.Redeem(caller.session, Octets(request.token()));
  if (!redeemed.ok()) return redeemed.status();
  Answer<v1::RedeemResponse> answer;
  Fill(answer.message.mutable_handle(), redeemed->handle);
  answer.message.set_writable(redeemed->writable);
  answer.descriptor = std::move(redeemed->handle.descriptor);
  return answer;
}

void Verbs::Drain() {
  draining_.store(true);
  line_.ExpireAll();
}

Status Verbs::CheckNotDraining() const {
  if (!draining()) return Ok();
  return Unavailable("the broker is draining").Because("DRAINING");
}

Clock::time_point Verbs::DeadlineOf(uint64_t timeout_ms) const {
  const auto most = static_cast<uint64_t>(config_.limits.request_timeout_max.count());
  return Clock::now() + std::chrono::milliseconds(std::min(timeout_ms, most));
}

Result<v1::Ticket> Verbs::TicketFor(SessionId session, ArenaId arena, Access access) {
  const auto token = broker_.IssueTicket(session, arena, access);
  if (!token.ok()) return token.status();
  sweeper_.After(config_.limits.ticket_lifetime);
  v1::Ticket ticket;
  ticket.set_token(std::string(Bytes(*token)));
  ticket.set_lifetime_ms(static_cast<uint64_t>(config_.limits.ticket_lifetime.count()));
  return ticket;
}

template <class Message>
Status Verbs::Hand(const Caller& caller, Handle handle, Access access, Answer<Message>* answer) {
  Fill(answer->message.mutable_handle(), handle);
  if (caller.door == Door::kLifeline) {
    answer->descriptor = std::move(handle.descriptor);
    return Ok();
  }
  if (!handle.descriptor.valid()) return Ok();  // the opaque bytes are all it takes
  auto ticket = TicketFor(caller.session, ArenaId{handle.arena}, access);
  if (!ticket.ok()) return ticket.status();
  *answer->message.mutable_ticket() = *std::move(ticket);
  return Ok();
}

template <class Message>
void Verbs::AddReturned(SessionId session, Message* message) {
  for (const RangeOfArena& range : broker_.TakeReturned(session, kReturnedMax)) {
    v1::Range* returned = message->add_returned();
    returned->set_arena(Number(range.arena));
    returned->set_offset(range.offset);
    returned->set_size(range.size);
  }
}

// An Allocate from its arrival to its answer. Only the slow thread tries it; whoever finds it overdue expires it.
class Verbs::Pending {
 public:
  Pending(Verbs& verbs, const Caller& caller, const v1::AllocateRequest& request, Reply<v1::AllocateResponse> reply)
      : verbs_(verbs),
        caller_(caller),
        request_(request),
        device_(FromMessage(request.device())),
        reply_(std::move(reply)) {}

  // Bytes of its own that came back go before fresh ones: they are populated. Those too small are kept for the answer,
  // whatever it is: each is handed out once.
  bool Try(bool first) {
    if (verbs_.draining()) return false;
    verbs_.AddReturned(caller_.session, &response_);
    const auto fits = [this](const v1::Range& range) { return range.size() >= request_.size(); };
    if (std::any_of(response_.returned().begin(), response_.returned().end(), fits)) return AnswerReturned();
    if (!first) return false;
    auto arena = Allocate();
    if (!arena.ok() && arena.status().code() == Code::kResourceExhausted) {
      refusal_ = arena.status();
      return false;
    }
    reply_(arena.ok() ? Granted(*std::move(arena)) : Result<Answer<v1::AllocateResponse>>(arena.status()));
    if (arena.ok() && verbs_.allocated_) verbs_.allocated_();
    return true;
  }

  void Expire() {
    if (response_.returned_size() > 0) {
      AnswerReturned();  // whether they are enough once joined with their neighbours, only the client knows
      return;
    }
    if (const Status draining = verbs_.CheckNotDraining(); !draining.ok()) return reply_(draining);
    if (!refusal_.ok()) return reply_(refusal_);
    reply_(ResourceExhausted("no room for ", request_.size(),
                             " bytes came while others of the namespace waited before it (", verbs_.line_.waiting(),
                             " requests wait)")
               .Because("WAITED_IN_VAIN"));
  }

 private:
  Result<AllocatedArena> Allocate() {
    const AllocateCall call{request_.namespace_(), device_, request_.size()};
    auto arena = verbs_.broker_.Allocate(caller_.session, call);
    if (arena.ok() || arena.status().code() != Code::kResourceExhausted) return arena;
    const Broker::Swept swept = verbs_.broker_.Sweep(Clock::now());
    if (swept.more_later) verbs_.sweeper_.Soon();
    if (swept.freed_bytes == 0) return arena;
    return verbs_.broker_.Allocate(caller_.session, call);
  }

  Result<Answer<v1::AllocateResponse>> Granted(AllocatedArena arena) {
    Answer<v1::AllocateResponse> answer;
    answer.message = std::move(response_);
    const uint64_t id = arena.handle.arena;
    const Status handed = verbs_.Hand(caller_, std::move(arena.handle), Access::kWrite, &answer);
    if (handed.ok()) return answer;
    // Without a ticket nobody can ever map it.
    static_cast<void>(verbs_.broker_.Release(caller_.session, {}, std::span(&id, 1), {}));
    verbs_.sweeper_.Soon();
    return handed;
  }

  bool AnswerReturned() {
    Answer<v1::AllocateResponse> answer;
    answer.message = std::move(response_);
    reply_(std::move(answer));
    return true;
  }

  Verbs& verbs_;
  const Caller caller_;
  const v1::AllocateRequest request_;
  const Device device_;
  const Reply<v1::AllocateResponse> reply_;
  v1::AllocateResponse response_;  // collects returned ranges
  Status refusal_;
};

WaiterId Verbs::Allocate(const Caller& caller, const v1::AllocateRequest& request, Reply<v1::AllocateResponse> reply) {
  const auto check = [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckNotDraining());
    AB_RETURN_IF_ERROR(CheckNamespace(config_.limits, request.namespace_()));
    return broker_.CheckAllocate(caller.session, {request.namespace_(), FromMessage(request.device()), request.size()});
  };
  const Status checked = check();
  const auto uid = checked.ok() ? broker_.UidOf(caller.session) : Result<uint32_t>(checked);
  if (!uid.ok()) return reply(uid.status()), WaiterId{};

  auto pending = std::make_shared<Pending>(*this, caller, request, reply);
  Waiter waiter;
  waiter.session = caller.session;
  if (request.timeout_ms() > 0) waiter.deadline = DeadlineOf(request.timeout_ms());
  waiter.retry = [pending](bool first) { return pending->Try(first); };
  waiter.expire = [pending] { pending->Expire(); };
  const auto place = line_.WaitForMemory(*uid, request.namespace_(), std::move(waiter));
  if (!place.ok()) return reply(place.status()), WaiterId{};
  slow_.Post([this] { line_.ServeMemory(); });
  return *place;
}

WaiterId Verbs::Acquire(const Caller& caller, const v1::AcquireRequest& request, Reply<v1::AcquireResponse> reply) {
  const auto check = [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckNotDraining());
    AB_RETURN_IF_ERROR(CheckNamespace(config_.limits, request.namespace_()));
    return CheckRefs(config_.limits, request.shares());
  };
  if (const Status checked = check(); !checked.ok()) return reply(checked), WaiterId{};
  auto granted = AcquireNow(caller, request, FromMessage(request.shares()));
  if (granted.ok() || granted.status().code() != Code::kNotFound || request.timeout_ms() == 0) {
    return reply(std::move(granted)), WaiterId{};
  }
  return AcquireLater(caller, request, granted.status(), std::move(reply));
}

Result<Answer<v1::AcquireResponse>> Verbs::AcquireNow(const Caller& caller, const v1::AcquireRequest& request,
                                                      std::span<const ShareKey> keys) {
  const bool lifeline = caller.door == Door::kLifeline;
  auto acquired = broker_.Acquire(caller.session, request.namespace_(), keys, lifeline);
  if (!acquired.ok()) return acquired.status();
  std::vector<uint64_t> leases;  // to be given back if the answer cannot be
  Answer<v1::AcquireResponse> answer;
  Status failed;
  for (const LeasedShare& leased : acquired->shares) {
    leases.push_back(Number(leased.lease));
    v1::LeasedShare* share = answer.message.add_shares();
    share->set_lease(Number(leased.lease));
    Fill(share->mutable_share(), *leased.facts, leased.handle, leased.immutability);
    if (lifeline || !failed.ok()) continue;
    auto ticket = TicketFor(caller.session, ArenaId{leased.handle.arena}, Access::kRead);
    if (ticket.ok()) *answer.message.add_tickets() = *std::move(ticket);
    failed = ticket.status();
  }
  if (acquired->descriptor) {
    answer.message.set_descriptor_arena(acquired->descriptor->arena);
    answer.descriptor = std::move(acquired->descriptor->descriptor);
  }
  if (const size_t bytes = answer.message.ByteSizeLong(); failed.ok() && bytes > AnswerBytesMax(config_)) {
    failed = ResourceExhausted("the answer has ", bytes, " bytes (limits.frame_bytes_max ",
                               config_.limits.frame_bytes_max, "): ask for fewer shares at once")
                 .Because("ANSWER_TOO_LARGE");
  }
  if (failed.ok()) return answer;
  static_cast<void>(broker_.Release(caller.session, leases, {}, {}));
  return failed;
}

WaiterId Verbs::AcquireLater(const Caller& caller, const v1::AcquireRequest& request, Status missing,
                             Reply<v1::AcquireResponse> reply) {
  struct Wait {
    v1::AcquireRequest request;
    std::vector<ShareKey> keys;  // views into `request`
    Status missing;
    Reply<v1::AcquireResponse> reply;
  };
  auto wait = std::make_shared<Wait>();
  wait->request = request;
  wait->keys = FromMessage(wait->request.shares());
  wait->missing = std::move(missing);
  wait->reply = reply;

  std::vector<std::string_view> names;
  for (const ShareKey& key : wait->keys) {
    if (!key.name.empty()) names.push_back(key.name);
  }
  if (names.empty()) return reply(wait->missing), WaiterId{};  // ids never come back

  Waiter waiter;
  waiter.session = caller.session;
  waiter.deadline = DeadlineOf(request.timeout_ms());
  waiter.retry = [this, caller, wait](bool) {
    if (draining()) return false;
    auto granted = AcquireNow(caller, wait->request, wait->keys);
    if (!granted.ok() && granted.status().code() == Code::kNotFound) {
      wait->missing = granted.status();
      return false;
    }
    wait->reply(std::move(granted));
    return true;
  };
  waiter.expire = [this, wait] {
    if (const Status draining = CheckNotDraining(); !draining.ok()) return wait->reply(draining);
    wait->reply(DeadlineExceeded("waited in vain: ", wait->missing.message()).Because("NAME_DID_NOT_COME"));
  };
  const auto place = line_.WaitForNames(request.namespace_(), names, std::move(waiter));
  if (!place.ok()) return reply(place.status()), WaiterId{};
  return *place;
}

// Rows are as large as their shares' specs: a page holds as many as fit into one answer.
Result<Answer<v1::ListResponse>> Verbs::List(const Caller& caller, const v1::ListRequest& request) {
  AB_RETURN_IF_ERROR(CheckList(config_.limits, request));
  ListFilter filter;
  filter.ns = request.namespace_();
  filter.name_prefix = request.name_prefix();
  filter.session = SessionId{request.session()};
  filter.page_token = request.page_token();
  filter.page_size =
      std::clamp<uint32_t>(request.page_size() == 0 ? kPageRowsMax : request.page_size(), 1, kPageRowsMax);
  const auto fill = [&](auto page, auto* rows, v1::ListResponse* response) -> Status {
    if (!page.ok()) return page.status();
    for (const auto& row : page->rows) Fill(rows->Add(), row);
    response->set_next_page_token(std::move(page->next));
    return Ok();
  };
  for (;; filter.page_size = (filter.page_size + 1) / 2) {
    Answer<v1::ListResponse> answer;
    v1::ListResponse* list = &answer.message;
    Status filled;
    switch (request.kind()) {
      case v1::ListRequest::SESSIONS:
        filled = fill(broker_.ListSessions(caller.session, filter), list->mutable_sessions(), list);
        break;
      case v1::ListRequest::LEASES:
        filled = fill(broker_.ListLeases(caller.session, filter), list->mutable_leases(), list);
        break;
      case v1::ListRequest::NAMESPACES:
        filled = fill(broker_.ListNamespaces(caller.session, filter), list->mutable_namespaces(), list);
        break;
      case v1::ListRequest::DEVICES:
        for (const DeviceFacts& device : broker_.Devices()) Fill(list->add_devices(), device);
        break;
      default:
        filled = fill(broker_.ListShares(caller.session, filter), list->mutable_shares(), list);
    }
    AB_RETURN_IF_ERROR(filled);
    if (list->ByteSizeLong() <= AnswerBytesMax(config_) || filter.page_size == 1) return answer;
  }
}

}  // namespace arraybridge
