// The two verbs that may wait: Allocate for memory, on the slow thread, and Acquire for a name.
#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/service/message_limits.h"
#include "daemon/service/messages.h"
#include "daemon/service/verbs.h"

namespace arraybridge {

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
  Deliver Try(bool first) {
    if (verbs_.draining()) return nullptr;
    verbs_.AddReturned(caller_.session, response_.mutable_returned());
    const auto fits = [this](const v1::Range& range) { return range.size() >= request_.size(); };
    if (std::any_of(response_.returned().begin(), response_.returned().end(), fits)) {
      return [this] { AnswerReturned(); };
    }
    if (!first) return nullptr;
    auto arena = Allocate();
    if (arena.ok()) return Delivery(Granted(*std::move(arena)));
    if (arena.status().code() != Code::kResourceExhausted) return Delivery(arena.status());
    refusal_ = arena.status();
    return nullptr;
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
    of_namespace.ns = request_.namespace_().empty() ? "default" : request_.namespace_();
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

  Result<AllocatedArena> Allocate() {
    const AllocateCall call{request_.namespace_(), device_, request_.size()};
    auto arena = verbs_.broker_.Allocate(caller_.session, call);
    if (arena.ok() || arena.status().code() != Code::kResourceExhausted) return arena;
    const Broker::Swept swept = verbs_.broker_.Sweep(Clock::now());
    if (swept.more_later) verbs_.sweeper_.Soon();
    if (swept.freed_bytes == 0) return arena;
    return verbs_.broker_.Allocate(caller_.session, call);
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
  if (const size_t bytes = answer.message.ByteSizeLong(); failed.ok() && bytes > AnswerBytesMax(config_.limits)) {
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
  waiter.retry = [this, caller, wait](bool) -> Deliver {
    if (draining()) return nullptr;
    auto granted = AcquireNow(caller, wait->request, wait->keys);
    if (!granted.ok() && granted.status().code() == Code::kNotFound) {
      wait->missing = granted.status();
      return nullptr;
    }
    const auto result = std::make_shared<Result<Answer<v1::AcquireResponse>>>(std::move(granted));
    return [wait, result] { wait->reply(std::move(*result)); };
  };
  waiter.expire = [this, wait] {
    if (const Status draining = CheckNotDraining(); !draining.ok()) return wait->reply(draining);
    wait->reply(DeadlineExceeded("waited in vain: ", wait->missing.message()).Because("NAME_DID_NOT_COME"));
  };
  const auto place = line_.WaitForNames(request.namespace_(), names, std::move(waiter));
  if (!place.ok()) return reply(place.status()), WaiterId{};
  return *place;
}

}  // namespace arraybridge
