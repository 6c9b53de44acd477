#include "daemon/broker/shares/pin_limits.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/broker/quota/namespace.h"
#include "daemon/broker/sessions/session.h"
#include "daemon/broker/shares/share.h"

namespace arraybridge {
namespace {

constexpr uint64_t kPart =
    2;  // by default: half of the device, and for a user half of the quota and of the maker's bytes

bool IsOver(const PinnedBytes& sum, uint64_t most) { return sum.shares > 1 && sum.bytes > most; }

}  // namespace

// Entries of one user stand side by side, so that the neighbours of an entry tell whether it is the user's only one.
void PinLimits::Leased(Session& session, Share& share) {
  if (session.peer.uid == share.maker_uid) return;
  std::vector<Share::Reader>& readers = share.readers;
  auto place = readers.end();
  for (auto each = readers.begin(); each != readers.end(); ++each) {
    if (each->session == &session) {
      ++each->leases;
      return;
    }
    if (each->session->account == session.account) place = std::next(each);
  }
  const bool is_first =
      place == readers.end() && (readers.empty() || readers.back().session->account != session.account);
  readers.insert(place, {&session, 1});
  if (share.withdrawn) Pin(session, share, is_first);
}

void PinLimits::Released(Session& session, Share& share) {
  std::vector<Share::Reader>& readers = share.readers;
  const auto its = std::ranges::find(readers, &session, &Share::Reader::session);
  if (its == readers.end() || --its->leases > 0) return;
  const auto next = readers.erase(its);
  if (!share.withdrawn) return;
  session.pinned.Drop(share);
  const bool others_before = next != readers.begin() && std::prev(next)->session->account == session.account;
  const bool others_behind = next != readers.end() && next->session->account == session.account;
  if (!others_before && !others_behind) session.account->pinned.Drop(share);
}

void PinLimits::Withdrawn(const Share& share) {
  const Account* last = nullptr;
  for (const Share::Reader& each : share.readers) {
    Pin(*each.session, share, each.session->account.get() != last);
    last = each.session->account.get();
  }
}

void PinLimits::Pin(Session& session, const Share& share, bool is_first_of_user) {
  session.pinned.Add(share);
  Check(session);
  if (!is_first_of_user) return;
  session.account->pinned.Add(share);
  CheckUser(session.peer.uid);
}

void PinLimits::Check(Session& session) {
  const bool over = std::ranges::any_of(session.pinned.rows(), [&](const PinnedBytes& row) {
    return IsOver(session.pinned.Sum({.device = row.device}), BytesOfSessionMax(row.device));
  });
  if (over && !session.is_over_limit) Choose(session, "pinned_bytes_per_session");
}

void PinLimits::CheckUser(uint32_t uid) {
  if (!Exceeded(uid, accounts_.Of(uid)->pinned) || !users_.insert(uid).second) return;
  flags_.pins_over_limit.store(true, std::memory_order_relaxed);
}

void PinLimits::Forget(const Session& session) {
  if (!session.is_over_limit) return;
  --session.account->over_limit;
  CheckUser(session.peer.uid);
}

std::vector<OverLimit> PinLimits::Take(const Sessions::Table& sessions) {
  flags_.pins_over_limit.store(false, std::memory_order_relaxed);
  for (const uint32_t uid : std::exchange(users_, {})) {
    const Account& account = *accounts_.Of(uid);
    const auto in = Exceeded(uid, account.pinned);
    if (account.over_limit > 0 || !in) continue;
    Session* most = nullptr;
    uint64_t most_bytes = 0;
    for (const auto& [id, session] : sessions) {
      if (session->peer.uid != uid) continue;
      const uint64_t bytes = session->pinned.Sum(*in).bytes;
      if (bytes <= most_bytes) continue;
      most = session.get();
      most_bytes = bytes;
    }
    if (most != nullptr) Choose(*most, "pinned_bytes_per_uid");
  }
  return std::exchange(chosen_, {});
}

void PinLimits::Choose(Session& session, std::string_view limit) {
  session.is_over_limit = true;
  ++session.account->over_limit;
  chosen_.push_back({session.id, limit});
  flags_.pins_over_limit.store(true, std::memory_order_relaxed);
}

uint64_t PinLimits::BytesOfSessionMax(const Device& device) const {
  const uint64_t chosen = config_.limits.pinned_bytes_per_session;
  return chosen != 0 ? chosen : backends_.CapacityBytes(device) / kPart;
}

// nullopt: the user keeps no more than it may.
std::optional<PinnedIn> PinLimits::Exceeded(uint32_t uid, const Pins& pinned) const {
  const uint64_t chosen = config_.limits.pinned_bytes_per_uid;
  const uint64_t of_maker = config_.limits.bytes_per_uid != 0 ? config_.limits.bytes_per_uid.get() : UINT64_MAX;
  const auto exceeds = [&](const PinnedIn& in, uint64_t all) {
    return IsOver(pinned.Sum(in), chosen != 0 ? chosen : all / kPart);
  };
  for (const PinnedBytes& row : pinned.rows()) {
    const PinnedIn on_device{.device = row.device, .not_made_by = uid};
    if (exceeds(on_device, backends_.CapacityBytes(row.device))) return on_device;
    const PinnedIn in_namespace{.ns = row.ns, .not_made_by = uid};
    if (exceeds(in_namespace, row.ns->quota().bytes())) return in_namespace;
    const PinnedIn made{.maker_uid = row.maker_uid};
    if (exceeds(made, of_maker)) return made;
  }
  return std::nullopt;
}

}  // namespace arraybridge
