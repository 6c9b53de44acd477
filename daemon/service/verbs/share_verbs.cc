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

namespace arraybridge::daemon {
namespace {

constexpr std::string_view kFencePending = "FENCE_PENDING";
constexpr std::string_view kNotThere = "SHARE_NOT_FOUND";
constexpr std::string_view kClaimed = "NAME_CLAIMED";
constexpr std::string_view kAway = "SHARE_AWAY";
constexpr uint64_t kLongest = 1ull << 40;  // milliseconds

// The wait of an Acquire for bytes that are being made.
uint64_t FenceTimeoutOf(const wire::AcquireRequest& request, uint64_t timeout_ms) {
  const uint64_t most = kFenceWait.count();
  const uint64_t said = request.fence_timeout_ms == 0 ? most : std::min(request.fence_timeout_ms, most);
  return std::max(timeout_ms, said);
}

// Whether the share may come. `timeout_ms`: how long the request would wait for a name. A request always waits for
// bytes that are being made. An id that is gone never comes back.
bool MayCome(const Status& refusal, uint64_t timeout_ms) {
  if (refusal.code() != Code::kNotFound) return false;
  const bool comes = refusal.reason() == kNotThere || refusal.reason() == kClaimed;
  return refusal.reason() == kFencePending || refusal.reason() == kAway || (comes && timeout_ms > 0);
}

// The name of the missing share. The request may have named it by its id.
std::string_view MissingIn(const Status& refusal) {
  for (const auto& [key, value] : refusal.metadata()) {
    if (key == "share") return value;
  }
  return {};
}

// The answer to a request that timed out names the missing share and its maker. `waited`: of Admission::TimedOut.
Status InVain(const std::string& waited, const Status& missing) {
  const bool pending = missing.reason() == kFencePending || missing.reason() == kAway;
  Status vain = DeadlineExceeded(waited, missing.message()).Because(pending ? missing.reason() : "NAME_DID_NOT_COME");
  for (const auto& [key, value] : missing.metadata()) vain = std::move(vain).With(key, value);
  return vain;
}

}  // namespace

Served ShareVerbs::Acquire(const Caller& caller, const wire::AcquireRequest& request, std::string_view bytes,
                           const Later& later) {
  auto granted = AcquireNow(caller, request);
  const bool missing = !granted.ok() && granted.status().reason() == kNotThere;
  if (missing && publishes_.ServeQueued(caller.session, request.namespace_)) granted = AcquireNow(caller, request);
  const uint64_t said = caller.TimeoutOf(request.timeout_ms);
  if (granted.ok() || !MayCome(granted.status(), said)) return {std::move(granted)};
  const bool is_pending = granted.status().reason() == kFencePending || granted.status().reason() == kAway;
  const auto attempt = [this, caller](std::string_view again) {
    return AcquireNow(caller, *wire::Decode<wire::AcquireRequest>(again));
  };
  const auto wait = std::make_shared<Wait>(
      Wait{std::string(bytes), is_pending ? FenceTimeoutOf(request, said) : said, attempt, granted.status()});
  return WaitForNames(caller, request.namespace_, request.shares.size(), wait, later);
}

Result<Answer> ShareVerbs::AcquireNow(const Caller& caller, const wire::AcquireRequest& request) {
  const std::vector<ShareKey> shares = KeysOf(request.shares);
  AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
  AB_RETURN_IF_ERROR(CheckNamespace(config_.limits, request.namespace_));
  AB_RETURN_IF_ERROR(CheckShares(config_.limits, shares));
  AB_RETURN_IF_ERROR(CheckNote(config_.limits, request.note));
  const bool lifeline = caller.door == Door::kLifeline;
  auto acquired = broker_.Acquire(caller.session, request.namespace_, shares, lifeline, request.final_only,
                                  request.note, AnswerBytesMax(config_.limits), caller.request);
  if (!acquired.ok()) {
    reclaimer_.Reclaim();  // the leases of a request whose descriptor failed were released
    return tiers_.Fetch(caller.session, request.namespace_, acquired.status());
  }
  return handover_.Leased(caller, *std::move(acquired));
}

Served ShareVerbs::WaitForNames(const Caller& caller, std::string_view ns, size_t names,
                                const std::shared_ptr<Wait>& wait, const Later& later) {
  auto waits = admission_.WaiterOf(caller, wait->bytes.size());
  if (!waits.ok()) return {waits.status()};
  const auto owner = broker_.OwnerOf(caller.session, ns, Right::kRead);
  if (!owner.ok()) return {owner.status()};
  const std::string first(MissingIn(wait->missing));
  const std::array<std::string_view, 1> missing = {first};
  Waiter waiter = *std::move(waits);
  waiter.deadline = admission_.DeadlineOf(wait->timeout_ms);
  waiter.names = names;
  waiter.misses = [wait] { return MissingIn(wait->missing); };
  waiter.retry = [this, wait](bool) -> Deliver {
    if (admission_.draining()) return nullptr;
    auto granted = wait->attempt(wait->bytes);
    if (!granted.ok() && MayCome(granted.status(), wait->timeout_ms)) {
      wait->missing = granted.status();
      return nullptr;
    }
    return Delivery(wait->reply, std::move(granted));
  };
  waiter.expire = [this, wait] {
    if (const Status draining = admission_.CheckNotDraining(); !draining.ok()) return wait->reply(draining);
    // Waits for the first missing share of several ids; the others may exist. A claim may have expired.
    auto granted = wait->attempt(wait->bytes);
    if (granted.ok() || !MayCome(granted.status(), wait->timeout_ms)) return wait->reply(std::move(granted));
    wait->reply(InVain(admission_.TimedOut(wait->timeout_ms), granted.status()));
  };
  wait->reply = later();
  const auto place = line_.WaitForNames(*owner, NamespaceNameOf(ns), missing, std::move(waiter));
  if (!place.ok()) return wait->reply(place.status()), Served{};
  return {{}, *place};
}

Served ShareVerbs::Claim(const Caller& caller, const wire::ClaimRequest& request, std::string_view bytes,
                         const Later& later) {
  publishes_.ServeQueued(caller.session, request.namespace_);
  auto claimed = ClaimNow(caller, request);
  const uint64_t timeout_ms = caller.TimeoutOf(request.timeout_ms);
  if (claimed.ok() || !MayCome(claimed.status(), timeout_ms)) return {std::move(claimed)};
  const auto attempt = [this, caller](std::string_view again) {
    return ClaimNow(caller, *wire::Decode<wire::ClaimRequest>(again));
  };
  const auto wait = std::make_shared<Wait>(Wait{std::string(bytes), timeout_ms, attempt, claimed.status()});
  return WaitForNames(caller, request.namespace_, 1, wait, later);
}

Result<Answer> ShareVerbs::ClaimNow(const Caller& caller, const wire::ClaimRequest& request) {
  if (request.release) return EndClaim(caller.session, request.claim), AnswerOf(wire::ClaimResponse{});
  if (!caller.hears) return InvalidArgument("Claim must want an answer, unless it releases");
  AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
  AB_RETURN_IF_ERROR(CheckNamespace(config_.limits, request.namespace_));
  const ShareKey key{.name = request.name, .newer_than = request.newer_than};
  const std::chrono::milliseconds lifetime(std::min<uint64_t>(request.lifetime_ms, kLongest));
  AB_ASSIGN_OR_RETURN(const auto claimed,
                      broker_.ClaimName(caller.session, request.namespace_, key, lifetime, request.claim));
  return AnswerOf(wire::ClaimResponse{.claim = claimed});
}

void ShareVerbs::EndClaim(SessionId session, uint64_t number) {
  const auto ended = broker_.ReleaseClaim(session, number);
  if (ended != nullptr) line_.NamePublished(ended->owner, ended->ns, ended->name);
}

void ShareVerbs::TakeBackClaimed(const Caller& caller, std::string_view answer) {
  const auto claimed = wire::Decode<wire::ClaimResponse>(answer);
  if (claimed.ok()) EndClaim(caller.session, claimed->claim);
}

Result<Answer> ShareVerbs::Release(const Caller& caller, const wire::ReleaseRequest& request) {
  AB_RETURN_IF_ERROR(CheckRelease(request));
  if (request.capabilities) AB_RETURN_IF_ERROR(CheckCapabilities(*request.capabilities));
  AB_ASSIGN_OR_RETURN(auto released, broker_.Release(caller.session, request.leases, request.arenas, request.unmapped));
  broker_.ForgetDirectChannels(caller.session, request.direct_channels);
  // Drops a note that cannot be kept: the caller may want no answer, and the leases in the request come first.
  uint64_t notes = 0;
  for (const wire::ShareNote& note : request.notes) {
    if (++notes > config_.limits.names_per_request) break;
    if (!CheckNote(config_.limits, note.note).ok()) continue;
    broker_.Renote(caller.session, ShareId{note.share}, note.note);
  }
  if (request.hazards_cleared) reclaimer_.sweeper().HazardCleared(caller.session);
  wire::ReleaseResponse response;
  AB_RETURN_IF_ERROR(EndFences(caller, request, &response.awaited));
  if (!request.pending.empty()) response.ended = broker_.EndedMakers(caller.session, request.pending);
  if (request.unmapped.empty()) {
    reclaimer_.Reclaim();
  } else {
    reclaimer_.sweeper().Soon();  // this mapping may have been the last one of a dying arena
  }
  if (request.capabilities) AB_RETURN_IF_ERROR(OfferAnew(caller, *request.capabilities));
  response.released = released;
  response.returned = handover_.Returned(caller);
  return AnswerOf(response);
}

Status ShareVerbs::EndFences(const Caller& caller, const wire::ReleaseRequest& request,
                             std::vector<uint64_t>* awaited) {
  if (request.done.empty() && request.lost.empty()) return Ok();
  AB_ASSIGN_OR_RETURN(const auto ended, broker_.EndFences(caller.session, request.done, request.lost));
  *awaited = ended.awaited;
  if (!line_.waits_for_names()) return Ok();
  for (const auto& facts : ended.finished) publishes_.AnnounceName(caller.session, facts->ns, facts->name);
  return Ok();
}

// The event kinds stay as the session first offered them, because other sessions wait for events already.
Status ShareVerbs::OfferAnew(const Caller& caller, const wire::ClientCapabilities& capabilities) {
  AB_ASSIGN_OR_RETURN(auto peer, broker_.PeerOf(caller.session));
  OfferHandles(capabilities, here_, peer);
  broker_.OfferAnew(caller.session, std::move(peer));
  return Ok();
}

Result<Answer> ShareVerbs::Withdraw(const Caller& caller, const wire::WithdrawRequest& request) {
  const std::vector<ShareKey> shares = KeysOf(request.shares);
  AB_RETURN_IF_ERROR(CheckWithdraw(config_.limits, request, shares));
  publishes_.ServeQueued(caller.session, request.namespace_);
  const auto withdrawn = request.channel.empty() ? broker_.Withdraw(caller.session, request.namespace_, shares)
                                                 : channels_.Drain(caller, request);
  reclaimer_.Reclaim();  // also if one name was missing, because the others were withdrawn
  reclaimer_.heap().Freed();
  if (!withdrawn.ok()) return withdrawn.status();
  return AnswerOf(wire::WithdrawResponse{.withdrawn = *withdrawn, .returned = handover_.Returned(caller)});
}

}  // namespace arraybridge::daemon
