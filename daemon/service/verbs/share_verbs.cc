// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/share_verbs.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/messages.h"
#include "proto/boundary/fence.h"

namespace arraybridge {
namespace {

constexpr std::string_view kFencePending = "FENCE_PENDING";
constexpr std::string_view kNotThere = "SHARE_NOT_FOUND";

std::span<const uint64_t> Numbers(const google::protobuf::RepeatedField<uint64_t>& field) {
  return {field.data(), static_cast<size_t>(field.size())};
}

// The wait of an Acquire for bytes that are being made.
uint64_t FenceTimeoutOf(const AcquireAsked& asked) {
  const uint64_t most = kFenceWait.count();
  const uint64_t said = asked.fence_timeout_ms == 0 ? most : std::min(asked.fence_timeout_ms, most);
  return std::max(asked.timeout_ms, said);
}

// The name of the missing share. The request may have named it by its id.
std::string_view MissingIn(const Status& refusal) {
  for (const auto& [key, value] : refusal.metadata()) {
    if (key == "share") return value;
  }
  return {};
}

// The answer to a request that timed out names the missing share and its maker. `waited`: as Admission::TimedOut says
// it.
Status InVain(const std::string& waited, const Status& missing) {
  const bool pending = missing.reason() == kFencePending;
  Status vain =
      DeadlineExceeded(waited, missing.message()).Because(std::string(pending ? kFencePending : "NAME_DID_NOT_COME"));
  for (const auto& [key, value] : missing.metadata()) vain = std::move(vain).With(key, value);
  return vain;
}

}  // namespace

WaiterId ShareVerbs::Acquire(const Caller& caller, const AcquireAsked& asked, const Reply<v1::AcquireResponse>& reply) {
  auto granted = AcquireMessage(caller, asked);
  const bool missing = !granted.ok() && granted.status().reason() == kNotThere;
  if (missing && publishes_.ServeQueued(caller.session, asked.ns)) granted = AcquireMessage(caller, asked);
  if (granted.ok() || !MayCome(granted.status(), asked.timeout_ms)) {
    return reply(std::move(granted)), WaiterId{};
  }
  return AcquireLater(caller, asked, granted.status(), reply);
}

// Whether waiting makes sense: for a name, and for bytes that are being made. An id that is gone never comes back.
bool ShareVerbs::MayCome(const Status& refusal, uint64_t timeout_ms) {
  if (refusal.code() != Code::kNotFound) return false;
  return refusal.reason() == kFencePending || (refusal.reason() == kNotThere && timeout_ms > 0);
}

Result<PassedFd> ShareVerbs::TryAcquire(const Caller& caller, const AcquireAsked& asked, std::string* response) {
  auto granted = AcquireNow(caller, asked, response);
  const bool missing = !granted.ok() && granted.status().reason() == kNotThere;
  if (!missing || !publishes_.ServeQueued(caller.session, asked.ns)) return granted;
  return AcquireNow(caller, asked, response);
}

Result<PassedFd> ShareVerbs::AcquireNow(const Caller& caller, const AcquireAsked& asked, std::string* response) {
  AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
  AB_RETURN_IF_ERROR(CheckNamespace(config_.limits, asked.ns));
  AB_RETURN_IF_ERROR(CheckShares(config_.limits, asked.shares));
  AB_RETURN_IF_ERROR(CheckNote(config_.limits, asked.note));
  const bool lifeline = caller.door == Door::kLifeline;
  auto acquired = broker_.Acquire(caller.session, asked.ns, asked.shares, lifeline, asked.final_only, asked.note,
                                  AnswerBytesMax(config_.limits), caller.request);
  if (!acquired.ok()) {
    reclaimer_.Reclaim();  // the leases of a request whose descriptor failed were released
    return acquired.status();
  }
  return handover_.EncodeLeases(caller, *std::move(acquired), response);
}

Result<Answer<v1::AcquireResponse>> ShareVerbs::AcquireMessage(const Caller& caller, const AcquireAsked& asked) {
  std::string bytes;
  auto granted = AcquireNow(caller, asked, &bytes);
  if (!granted.ok()) return granted.status();
  return handover_.DecodeLeases(caller, bytes, *std::move(granted));
}

WaiterId ShareVerbs::AcquireLater(const Caller& caller, const AcquireAsked& asked, Status missing,
                                  const Reply<v1::AcquireResponse>& reply) {
  struct Wait {
    const std::string bytes;
    Status missing;
    Reply<v1::AcquireResponse> reply;
    AcquireAsked asked;  // refers to these bytes
  };
  auto waits = admission_.WaiterOf(caller, asked.bytes.size());
  if (!waits.ok()) return reply(waits.status()), WaiterId{};
  const auto wait = std::make_shared<Wait>(Wait{std::string(asked.bytes), std::move(missing), reply, {}});
  wait->asked = *ReadAcquire(wait->bytes);
  const uint64_t timeout_ms = wait->missing.reason() == kFencePending ? FenceTimeoutOf(asked) : asked.timeout_ms;
  const std::string first(MissingIn(wait->missing));
  const std::array<std::string_view, 1> names = {first};
  Waiter waiter = *std::move(waits);
  waiter.deadline = admission_.DeadlineOf(timeout_ms);
  waiter.names = wait->asked.shares.size();
  waiter.misses = [wait] { return MissingIn(wait->missing); };
  waiter.retry = [this, caller, wait, timeout_ms](bool) -> Deliver {
    if (admission_.draining()) return nullptr;
    auto granted = AcquireMessage(caller, wait->asked);
    if (!granted.ok() && MayCome(granted.status(), timeout_ms)) {
      wait->missing = granted.status();
      return nullptr;
    }
    const auto result = std::make_shared<Result<Answer<v1::AcquireResponse>>>(std::move(granted));
    return [wait, result] { wait->reply(std::move(*result)); };
  };
  waiter.expire = [this, caller, wait, timeout_ms] {
    if (const Status draining = admission_.CheckNotDraining(); !draining.ok()) return wait->reply(draining);
    // Waits for the first missing share of several ids; the others may exist.
    auto granted = AcquireMessage(caller, wait->asked);
    if (granted.ok() || !MayCome(granted.status(), timeout_ms)) return wait->reply(std::move(granted));
    wait->reply(InVain(admission_.TimedOut(timeout_ms), granted.status()));
  };
  const auto owner = broker_.OwnerOf(caller.session, wait->asked.ns, Right::kRead);
  if (!owner.ok()) return reply(owner.status()), WaiterId{};
  const auto place = line_.WaitForNames(*owner, NamespaceNameOf(wait->asked.ns), names, std::move(waiter));
  if (!place.ok()) return reply(place.status()), WaiterId{};
  return *place;
}

Result<Answer<v1::ReleaseResponse>> ShareVerbs::Release(const Caller& caller, const v1::ReleaseRequest& request) {
  AB_RETURN_IF_ERROR(CheckRelease(request));
  AB_RETURN_IF_ERROR(CheckCapabilities(request.capabilities()));
  auto released = broker_.Release(caller.session, Numbers(request.leases()), Numbers(request.arenas()),
                                  Numbers(request.unmapped()));
  if (!released.ok()) return released.status();
  broker_.ForgetDirectChannels(caller.session, Numbers(request.direct_channels()));
  // Drops a note that cannot be kept: the caller may want no answer, and the leases in the request come first.
  uint64_t notes = 0;
  for (const v1::ShareNote& note : request.notes()) {
    if (++notes > config_.limits.names_per_request) break;
    if (!CheckNote(config_.limits, note.note()).ok()) continue;
    broker_.Renote(caller.session, ShareId{note.share()}, note.note());
  }
  if (request.hazards_cleared()) reclaimer_.sweeper().HazardCleared(caller.session);
  Answer<v1::ReleaseResponse> answer;
  AB_RETURN_IF_ERROR(EndFences(caller, request, &answer.message));
  if (request.unmapped().empty()) {
    reclaimer_.Reclaim();
  } else {
    reclaimer_.sweeper().Soon();  // this mapping may have been the last one of a dying arena
  }
  if (request.has_capabilities()) AB_RETURN_IF_ERROR(OfferAnew(caller, request.capabilities()));
  answer.message.set_released(released->released);
  handover_.AddReturned(caller, answer.message.mutable_returned());
  return answer;
}

Status ShareVerbs::EndFences(const Caller& caller, const v1::ReleaseRequest& request, v1::ReleaseResponse* response) {
  if (request.done().empty() && request.lost().empty()) return Ok();
  const auto ended = broker_.EndFences(caller.session, Numbers(request.done()), Numbers(request.lost()));
  if (!ended.ok()) return ended.status();
  response->mutable_awaited()->Add(ended->awaited.begin(), ended->awaited.end());
  if (!line_.waits_for_names()) return Ok();
  for (const auto& facts : ended->finished) publishes_.AnnounceName(caller.session, facts->ns, facts->name);
  return Ok();
}

// The event kinds stay as the session first offered them, because other sessions wait for events already.
Status ShareVerbs::OfferAnew(const Caller& caller, const v1::ClientCapabilities& capabilities) {
  auto peer = broker_.PeerOf(caller.session);
  if (!peer.ok()) return peer.status();
  OfferHandles(capabilities, here_, *peer);
  broker_.OfferAnew(caller.session, *std::move(peer));
  return Ok();
}

Result<Answer<v1::WithdrawResponse>> ShareVerbs::Withdraw(const Caller& caller, const v1::WithdrawRequest& request) {
  AB_RETURN_IF_ERROR(CheckWithdraw(config_.limits, request));
  const std::vector<ShareKey> shares = FromMessage(request.shares());
  publishes_.ServeQueued(caller.session, request.namespace_());
  const auto withdrawn = request.channel().empty() ? broker_.Withdraw(caller.session, request.namespace_(), shares)
                                                   : channels_.Drain(caller, request);
  reclaimer_.Reclaim();  // also if one name was missing, because the others were withdrawn
  reclaimer_.heap().Freed();
  if (!withdrawn.ok()) return withdrawn.status();
  Answer<v1::WithdrawResponse> answer;
  answer.message.set_withdrawn(*withdrawn);
  handover_.AddReturned(caller, answer.message.mutable_returned());
  return answer;
}

}  // namespace arraybridge
