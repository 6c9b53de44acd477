// SPDX-License-Identifier: Apache-2.0
// The Broker's verbs on claims.
#include <utility>

#include "daemon/broker/verbs/state.h"

namespace arraybridge::daemon {

Result<uint64_t> Broker::ClaimName(SessionId session, std::string_view ns, const ShareKey& key,
                                   std::chrono::milliseconds lifetime, uint64_t held) {
  State& state = *state_;
  const auto expires = lifetime.count() == 0 ? Clock::time_point::max() : Clock::now() + lifetime;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(Session* const found, state.sessions.Get(session));
  AB_ASSIGN_OR_RETURN(const auto place, state.rights.KeyOf(found->peer, ns, Right::kWrite));
  AB_RETURN_IF_ERROR(CheckName("the claimed name", key.name, state.config.limits.name_bytes_max));
  Namespace* const ns_of = state.namespaces.Find(place);
  Claim* const there = ns_of == nullptr ? nullptr : ns_of->FindClaim(key.name);
  if (there != nullptr && there->session == session && there->number == held) {
    there->expires = expires;
    return held;
  }
  if (FindShare(ns_of, key) != nullptr) return 0;
  AB_RETURN_IF_ERROR(state.CheckClaim(*found, key.name, there, held != 0));
  if (there != nullptr) state.EndClaim(*state.sessions.Find(there->session), *ns_of, key.name);
  AB_ASSIGN_OR_RETURN(const auto made, state.namespaces.FindOrMake(place, found->peer.uid));
  Namespace& owner = *made;
  const auto claim = std::make_shared<Claim>(
      Claim{state.shares.NextGeneration(), session, owner.uid(), owner.name(), std::string(key.name), expires});
  owner.claims.emplace(claim->name, claim);
  found->claims.emplace(claim->number, claim);
  ++found->account->claims;
  return claim->number;
}

Status Broker::State::CheckClaim(const Session& session, std::string_view name, const Claim* other, bool again) const {
  const auto claimed = [&](const auto&... holder) {
    return NotFound("share '", name, "' is not there yet: ", holder...,
                    ": wait until it is published or the claim ends")
        .Because("NAME_CLAIMED")
        .With("share", std::string(name));
  };
  const auto now = Clock::now();
  if (!again && now < renewals_until) return claimed("a session may renew its claim, because the daemon was replaced");
  const uint64_t most = config.limits.claims_per_session;
  if (session.claims.size() >= most) return AtLimit("TOO_MANY_CLAIMS", "claims_per_session", most);
  AB_RETURN_IF_ERROR(accounts.CheckObjects(session, "TOO_MANY_CLAIMS", object_bytes::kClaim));
  if (other == nullptr || other->expires <= now) return Ok();
  const Session& holder = *sessions.Find(other->session);
  if (holder.peer.uid != session.peer.uid) return claimed("another user has claimed its name");
  return claimed("process ", holder.peer.process_id, " ('", *holder.client, "') has claimed its name");
}

std::shared_ptr<const Claim> Broker::ReleaseClaim(SessionId session, uint64_t number) {
  const MutexLock lock(state_->mutex);
  Session* const found = state_->sessions.Find(session);
  if (found == nullptr || !found->claims.contains(number)) return nullptr;
  const Claim& its = *found->claims.at(number);
  return state_->EndClaim(*found, *state_->namespaces.Find({its.owner, its.ns}), its.name);
}

std::shared_ptr<const Claim> Broker::State::EndClaim(Session& session, Namespace& ns, std::string_view name) {
  const auto found = ns.claims.find(name);
  if (found == ns.claims.end() || found->second->session != session.id) return nullptr;
  std::shared_ptr<const Claim> ended = std::move(found->second);
  ns.claims.erase(found);
  session.claims.erase(ended->number);
  --session.account->claims;
  return ended;
}

}  // namespace arraybridge::daemon
