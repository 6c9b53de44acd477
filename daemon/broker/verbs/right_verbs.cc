// SPDX-License-Identifier: Apache-2.0
// The Broker's verbs on rights: namespaces that a session may use, and changes of the configuration.
#include "daemon/broker/verbs/state.h"

namespace arraybridge::daemon {

bool Broker::State::UsesOnlyWhatItMay(const Session& session, Right without_calls) const {
  const Peer& peer = session.peer;
  const auto key_of = [](const Namespace& ns) { return NamespaceKey{ns.uid(), ns.name()}; };
  for (const OpenQueue& open : sessions.queues()) {
    if (open.session == session.id && open.owner && !rights.MayUse(peer, {*open.owner, open.ns}, Right::kWrite))
      return false;
  }
  for (const auto& [id, made] : session.arenas) {
    if (!rights.MayUse(peer, key_of(*made->ns()), Right::kWrite)) return false;
  }
  for (const auto& [arena, use] : session.uses) {
    if (!rights.MayUse(peer, key_of(*arena->ns()), Right::kRead)) return false;
  }
  for (const Namespace* const held_in : session.hazard_pages_in) {
    if (!rights.MayUse(peer, key_of(*held_in), without_calls)) return false;
  }
  for (const auto& [id, end] : session.ends) {
    if (!rights.MayUse(peer, key_of(*end.channel->ns()), Right::kWrite)) return false;
  }
  for (const auto& [number, claim] : session.claims) {
    if (!rights.MayUse(peer, {claim->owner, claim->ns}, Right::kWrite)) return false;
  }
  for (const std::string& watched : session.watches) {
    if (!rights.MayUse(peer, {kSharedByUsers, watched}, Right::kRead)) return false;
  }
  return true;
}

Broker::Adopted Broker::AdoptNamespaces() {
  State& state = *state_;
  Adopted adopted;
  const MutexLock lock(state.mutex);
  state.rights.Adopt();
  state.namespaces.AdoptQuotas();
  std::vector<Share*> stranded;
  for (const auto& [key, ns] : state.namespaces.all()) {
    if (!state.rights.IsStranded(key)) continue;
    for (const auto& [id, share] : ns->shares()) {
      if (!share->withdrawn) stranded.push_back(share.get());
    }
  }
  state.arenas.because = FreeCause::kAdmin;
  for (Share* const share : stranded) state.shares.Withdraw(*share, nullptr, "reload");
  state.arenas.because = FreeCause::kRelease;
  adopted.withdrawn = stranded.size();
  for (const auto& [id, session] : state.sessions.all()) {
    // One that waits for its client is looked at when that comes: only then are its groups known.
    if (!session->awaited && !state.UsesOnlyWhatItMay(*session, kReadWithoutCalls)) adopted.without_right.push_back(id);
  }
  return adopted;
}

Result<uint32_t> Broker::OwnerOf(SessionId session, std::string_view ns, Right right) const {
  const State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(const Session* const found, state.sessions.Get(session));
  AB_ASSIGN_OR_RETURN(const auto key, state.rights.KeyOf(found->peer, ns, right));
  return key.uid;
}

}  // namespace arraybridge::daemon
