// The Broker's part in who may use what: whose namespace a name means to a session, what it may do there, and what
// changes when the operator writes down something else.
#include <algorithm>
#include <utility>

#include "daemon/broker/state.h"

namespace arraybridge {
namespace {

// The same for what is there and for what is not.
Status Denied(const Peer& peer, std::string_view ns, Right has) {
  const std::string_view may = has == Right::kRead ? " may only read namespace '" : " may not use namespace '";
  const bool by_token = !peer.token.empty() && !peer.is_remote();
  return PermissionDenied(peer.who(), by_token ? ", with the token that it states," : "", may, ns, "'")
      .Because(has == Right::kRead ? "NAMESPACE_READ_ONLY" : "NAMESPACE_DENIED")
      .With("namespace", std::string(ns))
      .With("uid", std::to_string(peer.uid));
}

}  // namespace

NamespacePolicy Broker::State::DefaultPolicy() const {
  return {config.namespace_quota_bytes, config.share_lifetime, config.orphan_grace, config.withdraw_on_exit, {}};
}

const NamespacePolicy& Broker::State::PolicyOf(std::string_view name) const {
  const auto found = policies.find(name);
  return found == policies.end() ? default_policy : found->second;
}

uint64_t Broker::State::quota_bytes(const NamespaceKey& key) const {
  if (!set_quotas.empty()) {
    const auto found = set_quotas.find({key.uid, std::string(key.name)});
    if (found != set_quotas.end()) return found->second;
  }
  const uint64_t configured = PolicyOf(key.name).quota_bytes;
  if (configured != 0) return configured;
  // A device may have several backends, and is counted once.
  std::vector<Device> counted;
  uint64_t capacity = 0;
  for (const MemoryBackend* backend : backends) {
    for (const Device& device : backend->devices()) {
      if (std::ranges::find(counted, device) != counted.end()) continue;
      counted.push_back(device);
      capacity += backend->usage(device).capacity_bytes;
    }
  }
  return capacity;
}

Broker::State::Place Broker::State::PlaceOf(const Peer& peer, std::string_view name) const {
  const auto found = policies.find(name);
  if (found != policies.end() && found->second.shared()) {
    return {kSharedByUsers, RightOf(found->second.access, peer.credentials())};
  }
  // Over TCP nobody has a namespace to himself: what a certificate may use, the operator has written down.
  if (peer.is_remote()) return {kSharedByUsers, Right::kNone};
  const bool listed = found != policies.end() || name == kDefaultNamespace;
  return {peer.uid, listed || config.unlisted_namespaces ? Right::kWrite : Right::kNone};
}

Result<NamespaceKey> Broker::State::KeyOf(const Session& session, std::string_view ns, Right right) const {
  const std::string_view name = NamespaceNameOf(ns);
  const Place place = PlaceOf(session.peer, name);
  if (place.right >= right) return NamespaceKey{place.owner, name};
  AB_RETURN_IF_ERROR(CheckName("the namespace's name", name, config.limits.name_bytes_max));  // it is echoed
  return Denied(session.peer, name, place.right);
}

bool Broker::State::MayCome(const Peer& peer) const {
  if (!peer.is_remote()) return true;
  return std::ranges::any_of(policies, [&](const auto& named) {
    return named.second.shared() && RightOf(named.second.access, peer.credentials()) != Right::kNone;
  });
}

bool Broker::State::MayList(const Peer& peer, const NamespaceKey& key) const {
  if (key.uid != kSharedByUsers) return key.uid == peer.uid;
  const Place place = PlaceOf(peer, key.name);
  return place.owner == key.uid && place.right >= Right::kRead;
}

bool Broker::State::IsStranded(const NamespaceKey& key) const {
  const auto found = policies.find(key.name);
  const bool shared = found != policies.end() && found->second.shared();
  return shared != (key.uid == kSharedByUsers);
}

bool Broker::State::MayUse(const Peer& peer, const NamespaceKey& key, Right right) const {
  const Place place = PlaceOf(peer, key.name);
  return place.owner == key.uid && place.right >= right;
}

bool Broker::State::UsesOnlyWhatItMay(const Session& session) const {
  const Peer& peer = session.peer;
  if (!MayCome(peer)) return false;
  const auto key_of = [](const Namespace& ns) { return NamespaceKey{ns.uid(), ns.name()}; };
  for (const OpenQueue& open : queues) {
    if (open.session == session.id && open.owner && !MayUse(peer, {*open.owner, open.ns}, Right::kWrite)) return false;
  }
  for (const auto& [id, made] : session.arenas) {
    if (!MayUse(peer, key_of(*made->ns()), Right::kWrite)) return false;
  }
  for (const auto& [arena, use] : session.uses) {
    if (!MayUse(peer, key_of(*arena->ns()), Right::kRead)) return false;
  }
  for (const Namespace* const held_in : session.holds_in) {
    if (!MayUse(peer, key_of(*held_in), Right::kRead)) return false;
  }
  for (const auto& [id, end] : session.ends) {
    if (!MayUse(peer, key_of(*end.channel->ns()), Right::kWrite)) return false;
  }
  for (const std::string& watched : session.watches) {
    if (!MayUse(peer, {kSharedByUsers, watched}, Right::kRead)) return false;
  }
  return true;
}

Broker::Adopted Broker::AdoptNamespaces() {
  State& state = *state_;
  Adopted adopted;
  const MutexLock lock(state.mutex);
  state.policies = state.config.namespaces;
  state.default_policy = state.DefaultPolicy();
  std::vector<Share*> stranded;
  for (const auto& [key, ns] : state.namespaces) {
    ns->ChangeQuota(state.quota_bytes(key));
    if (!state.IsStranded(key)) continue;
    for (const auto& [id, share] : ns->shares()) {
      if (!share->withdrawn) stranded.push_back(share.get());
    }
  }
  state.because = FreeCause::kAdmin;
  for (Share* const share : stranded) state.Withdraw(*share, nullptr, "reload");
  state.because = FreeCause::kRelease;
  adopted.withdrawn = stranded.size();
  for (const auto& [id, session] : state.sessions) {
    if (!state.UsesOnlyWhatItMay(*session)) adopted.without_right.push_back(id);
  }
  return adopted;
}

Status Broker::State::CheckMayCome(const Peer& peer) const {
  if (MayCome(peer)) return Ok();
  return PermissionDenied(peer.who(), " is named by no namespace's access list of this broker")
      .Because("NO_RIGHTS")
      .With("subject", peer.subject.front());
}

Status Broker::CheckMayCome(const Peer& peer) const {
  const MutexLock lock(state_->mutex);
  return state_->CheckMayCome(peer);
}

Result<uint32_t> Broker::OwnerOf(SessionId session, std::string_view ns, Right right) const {
  const State& state = *state_;
  const MutexLock lock(state.mutex);
  const Session* const found = state.FindSession(session);
  if (found == nullptr) return NoSession();
  const auto key = state.KeyOf(*found, ns, right);
  if (!key.ok()) return key.status();
  return key->uid;
}

}  // namespace arraybridge
