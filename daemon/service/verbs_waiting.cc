// The verbs that may wait: Allocate for memory, on the slow thread, Acquire for a name, and a Publish for its seal.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "daemon/service/message_limits.h"
#include "daemon/service/messages.h"
#include "daemon/service/share_wire.h"
#include "daemon/service/verbs.h"
#include "proto/boundary/fence.h"

namespace arraybridge {
namespace {

// What clients' arenas grow to. Populating so much takes tens of milliseconds; what is larger has a lane of its own.
constexpr uint64_t kShortBytesMax = 64ull << 20;

// So often a client is told that its memory is being populated: less than any timeout that makes sense.
constexpr std::chrono::milliseconds kProgressEvery{100};

constexpr std::string_view kFencePending = "FENCE_PENDING";
constexpr std::string_view kNotThere = "SHARE_NOT_FOUND";

// The device or the system has no memory left, whoever has it: programs that know no broker give it back and tell
// nobody.
bool IsMachines(const Status& refusal) {
  return refusal.reason() == "SYSTEM_MEMORY" || refusal.reason() == "CUDA_ERROR_OUT_OF_MEMORY";
}

// Whether others could give back what is missing. What no file may be as large as is not there later either.
bool MayBeRoom(const Status& refusal) {
  return refusal.code() == Code::kResourceExhausted && refusal.reason() != "FILE_SIZE_LIMIT";
}

// How long an Acquire may wait once it is known that bytes are being made.
uint64_t FenceTimeoutOf(const AcquireAsked& asked) {
  const uint64_t most = kFenceWait.count();
  const uint64_t said = asked.fence_timeout_ms == 0 ? most : std::min(asked.fence_timeout_ms, most);
  return std::max(asked.timeout_ms, said);
}

// The name of the share that is waited for; it may have been asked for by its id.
std::string_view MissingIn(const Status& refusal) {
  for (const auto& [key, value] : refusal.metadata()) {
    if (key == "share") return value;
  }
  return {};
}

// What was waited for, and whose it is, stays as it was told.
Status InVain(const Status& missing) {
  const bool pending = missing.reason() == kFencePending;
  Status vain = DeadlineExceeded("waited in vain: ", missing.message())
                    .Because(std::string(pending ? kFencePending : "NAME_DID_NOT_COME"));
  for (const auto& [key, value] : missing.metadata()) vain = std::move(vain).With(key, value);
  return vain;
}

Lane LaneOf(const v1::AllocateRequest& request) { return request.size() > kShortBytesMax ? Lane::kLong : Lane::kShort; }

}  // namespace

// An Allocate from its arrival to its answer. Only its lane's thread tries it; whoever finds it overdue expires it.
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
  Deliver Try(bool first) {
    if (verbs_.draining()) return nullptr;
    verbs_.LookAtHolds(Sweeper::Look::kAll);
    verbs_.AddReturned(caller_, response_.mutable_returned());
    const auto fits = [this](const v1::Range& range) { return range.size() >= request_.size(); };
    if (std::any_of(response_.returned().begin(), response_.returned().end(), fits)) {
      return [this] { AnswerReturned(); };
    }
    if (!first) return nullptr;
    auto arena = Allocate();
    if (arena.ok()) return Delivery(Granted(*std::move(arena)));
    if (!MayBeRoom(arena.status())) return Delivery(arena.status());
    refusal_ = arena.status();
    if (request_.timeout_ms() > 0 && IsMachines(refusal_)) verbs_.ServeMemoryLater(LaneOf(request_));
    return nullptr;
  }

  // Its own quota is nothing that other users could give back.
  Lack lack() const {
    const bool shared = refusal_.reason() == "DEVICE_FULL" || IsMachines(refusal_);
    const auto owner = verbs_.broker_.OwnerOf(caller_.session, request_.namespace_(), Right::kWrite);
    return shared || (owner.ok() && *owner == kSharedByUsers) ? Lack::kShared : Lack::kOwn;
  }

  void Expire() {
    if (response_.returned_size() > 0) {
      AnswerReturned();  // whether they are enough once joined with their neighbours, only the client knows
      return;
    }
    if (const Status draining = verbs_.CheckNotDraining(); !draining.ok()) return reply_(draining);
    if (!refusal_.ok()) return reply_(refusal_);
    reply_(ResourceExhausted("no room for ", request_.size(),
                             " bytes came while others of the namespace waited before it: ", Numbers())
               .Because("WAITED_IN_VAIN"));
  }

 private:
  // What is in the way of one that was never the first in line.
  std::string Numbers() const {
    std::string text = Concat(verbs_.line_.waiting(), " requests wait");
    ListFilter of_namespace;
    of_namespace.ns = NamespaceNameOf(request_.namespace_());
    of_namespace.page_size = 1;
    const auto page = verbs_.broker_.ListNamespaces(caller_.session, of_namespace);
    if (page.ok() && !page->rows.empty()) {
      const NamespaceRow& row = page->rows.front();
      text += Concat(", namespace '", row.ns, "' has ", row.charged_bytes, " of ", row.quota_bytes, " bytes in use");
    }
    for (const DeviceFacts& facts : verbs_.broker_.Devices()) {
      if (facts.device.type != device_.type || facts.device.id != device_.id) continue;
      text += Concat(", the device ", facts.allocated_bytes, " of ", facts.capacity_bytes);
    }
    return text;
  }

  // Called for every few megabytes.
  void TellProgress() {
    const auto now = Clock::now();
    if (!caller_.progress || now - told_ < kProgressEvery) return;
    told_ = now;
    caller_.progress();
  }

  Result<AllocatedArena> Allocate() {
    told_ = Clock::now();
    const AllocateCall call{request_.namespace_(), device_, request_.size(), [this] { TellProgress(); }};
    auto arena = verbs_.broker_.Allocate(caller_.session, call);
    if (arena.ok() || arena.status().code() != Code::kResourceExhausted) return arena;
    if (verbs_.sweeper_.SweepNow().freed_bytes == 0) return arena;
    arena = verbs_.broker_.Allocate(caller_.session, call);
    verbs_.ServeMemorySoon(Other(LaneOf(request_)));  // it may have been refused while this one swept
    return arena;
  }

  // A descriptor cannot be copied, a std::function can: hence the shared result.
  Deliver Delivery(Result<Answer<v1::AllocateResponse>> result) {
    return [this, result = std::make_shared<Result<Answer<v1::AllocateResponse>>>(std::move(result))] {
      const bool allocated = result->ok();
      reply_(std::move(*result));
      if (allocated && verbs_.allocated_) verbs_.allocated_();
    };
  }

  Result<Answer<v1::AllocateResponse>> Granted(AllocatedArena arena) {
    Answer<v1::AllocateResponse> answer;
    answer.message = std::move(response_);
    Fill(answer.message.mutable_handle(), arena.handle);
    auto handed = verbs_.HandOver(caller_, arena.handle, Access::kWrite);
    if (!handed.ok()) {
      // Without a ticket nobody can ever map it.
      static_cast<void>(verbs_.broker_.Release(caller_.session, {}, std::span(&arena.handle.arena, 1), {}));
      verbs_.sweeper_.Soon();
      return handed.status();
    }
    if (handed->ticket) *answer.message.mutable_ticket() = *std::move(handed->ticket);
    answer.descriptor = std::move(handed->descriptor);
    return answer;
  }

  void AnswerReturned() {
    Answer<v1::AllocateResponse> answer;
    answer.message = std::move(response_);
    reply_(std::move(answer));
  }

  Verbs& verbs_;
  const Caller caller_;
  const v1::AllocateRequest request_;
  const Device device_;
  const Reply<v1::AllocateResponse> reply_;
  v1::AllocateResponse response_;  // collects returned ranges
  Status refusal_;
  Clock::time_point told_{};  // of progress, or that there will be some
};

WaiterId Verbs::Allocate(const Caller& caller, const v1::AllocateRequest& request,
                         const Reply<v1::AllocateResponse>& reply) {
  const auto check = [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckNotDraining());
    AB_RETURN_IF_ERROR(CheckNamespace(config_.limits, request.namespace_()));
    return broker_.CheckAllocate(caller.session, {request.namespace_(), FromMessage(request.device()), request.size()});
  };
  const Status checked = check();
  auto waits = checked.ok() ? WaiterOf(caller, request.ByteSizeLong()) : Result<Waiter>(checked);
  if (!waits.ok()) return reply(waits.status()), WaiterId{};

  auto pending = std::make_shared<Pending>(*this, caller, request, reply);
  Waiter waiter = *std::move(waits);
  const uint32_t uid = waiter.uid;
  waiter.lane = LaneOf(request);
  if (request.timeout_ms() > 0) waiter.deadline = DeadlineOf(request.timeout_ms());
  waiter.retry = [pending](bool first) { return pending->Try(first); };
  waiter.lack = [pending] { return pending->lack(); };
  waiter.expire = [pending] { pending->Expire(); };
  const auto place = line_.WaitForMemory(uid, NamespaceNameOf(request.namespace_()), std::move(waiter));
  if (!place.ok()) return reply(place.status()), WaiterId{};
  // It may have ended since its uid was asked for, and its waiters been dropped.
  if (const auto lives = broker_.UidOf(caller.session); !lives.ok()) {
    line_.Cancel(*place);
    return WaiterId{};
  }
  ServeMemorySoon(LaneOf(request));
  return *place;
}

void Verbs::TakeBack(const Caller& caller, const v1::AllocateResponse& granted) {
  std::vector<RangeOfArena> returned;
  for (const v1::Range& range : granted.returned()) {
    returned.push_back({ArenaId{range.arena()}, range.offset(), range.size()});
  }
  broker_.KeepReturned(caller.session, returned);
  if (!granted.has_handle()) return;
  const uint64_t arena = granted.handle().arena();
  static_cast<void>(broker_.Release(caller.session, {}, {&arena, 1}, {}));
  sweeper_.Soon();
}

// A client that was sent no descriptor has no mapping either.
void Verbs::TakeBack(const Caller& caller, const v1::AcquireResponse& granted) {
  std::vector<uint64_t> leases;
  for (const auto& leased : granted.shares()) leases.push_back(leased.lease());
  const uint64_t arena = granted.descriptor_arena();
  // Later: a door may call this with a lock held, under which nobody else can be answered.
  for (const ChannelId channel : broker_.PutBack(caller.session, leases)) {
    slow_.Post([this, channel] { ServeChannel(channel); });
  }
  static_cast<void>(broker_.Release(caller.session, leases, {}, {&arena, arena == 0 ? 0u : 1u}));
  Reclaim();
}

void Verbs::TakeBack(const Caller& caller, const v1::ExportResponse& granted) {
  const uint64_t arena = granted.handle().arena();
  static_cast<void>(broker_.Release(caller.session, {}, {}, {&arena, 1}));
}

WaiterId Verbs::PublishSealed(const Caller& caller, const PublishAsked& asked,
                              const Reply<v1::PublishResponse>& reply) {
  auto waits = WaiterOf(caller, asked.bytes.size());
  if (!waits.ok()) return reply(waits.status()), WaiterId{};
  const auto bytes = std::make_shared<const std::string>(asked.bytes);
  Waiter waiter = *std::move(waits);  // without a deadline: all it waits for is its turn
  const uint32_t uid = waiter.uid;
  waiter.retry = [this, caller, bytes, reply](bool) -> Deliver {
    const auto again = ReadPublish(*bytes);
    const auto result = std::make_shared<Result<Answer<v1::PublishResponse>>>(Publish(caller, *again));
    return [reply, result] { reply(std::move(*result)); };
  };
  waiter.expire = [this, reply] { reply(CheckNotDraining()); };  // nothing else ends its wait
  const auto place = to_seal_.WaitForMemory(uid, NamespaceNameOf(asked.ns), std::move(waiter));
  if (!place.ok()) return reply(place.status()), WaiterId{};
  if (seal_posted_.exchange(true)) return WaiterId{};
  sealer_.Post([this] {
    seal_posted_.store(false);
    to_seal_.ServeMemory();
  });
  return WaiterId{};
}

WaiterId Verbs::Acquire(const Caller& caller, const AcquireAsked& asked, const Reply<v1::AcquireResponse>& reply) {
  auto granted = AcquireMessage(caller, asked);
  const bool missing = !granted.ok() && granted.status().reason() == kNotThere;
  if (missing && ServeQueued(caller.session, asked.ns)) granted = AcquireMessage(caller, asked);
  if (granted.ok() || !MayCome(granted.status(), asked.timeout_ms)) {
    return reply(std::move(granted)), WaiterId{};
  }
  return AcquireLater(caller, asked, granted.status(), reply);
}

// An id that is gone never comes back: only names are worth waiting for, and bytes that are on their way.
bool Verbs::MayCome(const Status& refusal, uint64_t timeout_ms) {
  if (refusal.code() != Code::kNotFound) return false;
  return refusal.reason() == kFencePending || (refusal.reason() == kNotThere && timeout_ms > 0);
}

Result<PassedFd> Verbs::AcquireAtOnce(const Caller& caller, const AcquireAsked& asked, std::string* response) {
  auto granted = AcquireNow(caller, asked, response);
  const bool missing = !granted.ok() && granted.status().reason() == kNotThere;
  if (!missing || !ServeQueued(caller.session, asked.ns)) return granted;
  return AcquireNow(caller, asked, response);
}

Result<PassedFd> Verbs::AcquireNow(const Caller& caller, const AcquireAsked& asked, std::string* response) {
  AB_RETURN_IF_ERROR(CheckNotDraining());
  AB_RETURN_IF_ERROR(CheckNamespace(config_.limits, asked.ns));
  AB_RETURN_IF_ERROR(CheckShares(config_.limits, asked.shares));
  AB_RETURN_IF_ERROR(CheckNote(config_.limits, asked.note));
  const bool lifeline = caller.door == Door::kLifeline;
  auto acquired = broker_.Acquire(caller.session, asked.ns, asked.shares, lifeline, asked.final_only, asked.note,
                                  AnswerBytesMax(config_.limits));
  if (!acquired.ok()) {
    Reclaim();  // what it leased before its descriptor failed is let go again
    return acquired.status();
  }
  return Told(caller, *std::move(acquired), response);
}

Result<PassedFd> Verbs::Told(const Caller& caller, AcquiredShares acquired, std::string* response) {
  response->clear();
  for (const LeasedShare& leased : acquired.shares) AppendLeased(leased, response);
  Status failed = caller.door == Door::kLifeline ? Ok() : AppendTickets(caller.session, acquired, response);
  PassedFd descriptor;
  if (acquired.descriptor) {
    AppendDescriptorArena(acquired.descriptor->arena, response);
    descriptor = PassedFd(std::move(acquired.descriptor->descriptor), acquired.descriptor->kind);
  }
  if (failed.ok() && response->size() > AnswerBytesMax(config_.limits)) {
    failed = ResourceExhausted("the answer has ", response->size(), " bytes (limits.frame_bytes_max ",
                               config_.limits.frame_bytes_max, "): ask for fewer shares at once")
                 .Because("ANSWER_TOO_LARGE");
  }
  if (failed.ok()) return descriptor;
  v1::AcquireResponse granted;
  ReadBack(*response, &granted);
  TakeBack(caller, granted);
  return failed;
}

Status Verbs::AppendTickets(SessionId session, const AcquiredShares& acquired, std::string* response) {
  v1::AcquireResponse tickets;
  for (const LeasedShare& leased : acquired.shares) {
    if (!leased.handle.opaque.empty()) {
      tickets.add_tickets();  // its handle is all there
      continue;
    }
    auto ticket = TicketFor(session, ArenaId{leased.handle.arena}, Access::kRead);
    if (!ticket.ok()) return ticket.status();
    *tickets.add_tickets() = *std::move(ticket);
  }
  tickets.AppendToString(response);
  return Ok();
}

Result<Answer<v1::AcquireResponse>> Verbs::ReadAgain(const Caller& caller, const std::string& bytes,
                                                     PassedFd descriptor) {
  Answer<v1::AcquireResponse> answer;
  answer.descriptor = std::move(descriptor);
  if (ReadBack(bytes, &answer.message)) return answer;
  TakeBack(caller, answer.message);
  return Status(Code::kInternal, "what was said of a share cannot be read");
}

Result<Answer<v1::AcquireResponse>> Verbs::AcquireMessage(const Caller& caller, const AcquireAsked& asked) {
  std::string bytes;
  auto granted = AcquireNow(caller, asked, &bytes);
  if (!granted.ok()) return granted.status();
  return ReadAgain(caller, bytes, *std::move(granted));
}

WaiterId Verbs::AcquireLater(const Caller& caller, const AcquireAsked& asked, Status missing,
                             const Reply<v1::AcquireResponse>& reply) {
  struct Wait {
    const std::string bytes;
    Status missing;
    Reply<v1::AcquireResponse> reply;
    AcquireAsked asked;  // of these bytes
  };
  auto waits = WaiterOf(caller, asked.bytes.size());
  if (!waits.ok()) return reply(waits.status()), WaiterId{};
  const auto wait = std::make_shared<Wait>(Wait{std::string(asked.bytes), std::move(missing), reply, {}});
  wait->asked = *ReadAcquire(wait->bytes);
  const uint64_t timeout_ms = wait->missing.reason() == kFencePending ? FenceTimeoutOf(asked) : asked.timeout_ms;
  const std::string first(MissingIn(wait->missing));
  const std::array<std::string_view, 1> names = {first};
  Waiter waiter = *std::move(waits);
  waiter.deadline = DeadlineOf(timeout_ms);
  waiter.names = wait->asked.shares.size();
  waiter.misses = [wait] { return MissingIn(wait->missing); };
  waiter.retry = [this, caller, wait, timeout_ms](bool) -> Deliver {
    if (draining()) return nullptr;
    auto granted = AcquireMessage(caller, wait->asked);
    if (!granted.ok() && MayCome(granted.status(), timeout_ms)) {
      wait->missing = granted.status();
      return nullptr;
    }
    const auto result = std::make_shared<Result<Answer<v1::AcquireResponse>>>(std::move(granted));
    return [wait, result] { wait->reply(std::move(*result)); };
  };
  waiter.expire = [this, caller, wait, timeout_ms] {
    if (const Status draining = CheckNotDraining(); !draining.ok()) return wait->reply(draining);
    // Of several that were asked for by id the first one that was missing is waited for: the others may be there.
    auto granted = AcquireMessage(caller, wait->asked);
    if (granted.ok() || !MayCome(granted.status(), timeout_ms)) return wait->reply(std::move(granted));
    wait->reply(InVain(granted.status()));
  };
  const auto owner = broker_.OwnerOf(caller.session, wait->asked.ns, Right::kRead);
  if (!owner.ok()) return reply(owner.status()), WaiterId{};
  const auto place = line_.WaitForNames(*owner, NamespaceNameOf(wait->asked.ns), names, std::move(waiter));
  if (!place.ok()) return reply(place.status()), WaiterId{};
  return *place;
}

}  // namespace arraybridge
