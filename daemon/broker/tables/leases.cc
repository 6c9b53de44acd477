// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/leases.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "daemon/at_limit.h"
#include "daemon/broker/objects/arena.h"

namespace arraybridge::daemon {
namespace {

// The refusal names the event and its maker, but not other users' processes.
Status FencePending(const Session& session, const Share& share) {
  const std::string& name = share.facts->name;
  const std::string& device = share.arena->device().uuid;
  const bool sees_maker = session.peer.uid == share.maker_uid;
  const std::string maker = sees_maker ? Concat(" (session ", Number(share.maker), ", process ", share.maker_process_id,
                                                ", user ", share.maker_uid, ")")
                                       : ", another user's process,";
  Status pending = NotFound("the bytes of share '", name, "' are not complete: its maker", maker,
                            " has not reported the completion of its event on ", device)
                       .Because("FENCE_PENDING")
                       .With("share", name)
                       .With("device", device)
                       .With("fence", "event");
  if (!sees_maker) return pending;
  return std::move(pending)
      .With("maker_session", std::to_string(Number(share.maker)))
      .With("maker_process_id", std::to_string(share.maker_process_id))
      .With("maker_uid", std::to_string(share.maker_uid));
}

}  // namespace

Visitor VisitorOf(const Session& session) {
  return {session.id, session.client, session.peer.process_id, session.peer.uid};
}

Leases::Leases(const Config& config, Events& events, const Sessions& sessions, Accounts& accounts, Hazards& hazards,
               Arenas& arenas, Shares& shares, Journal& journal)
    : config_(config),
      events_(events),
      sessions_(sessions),
      accounts_(accounts),
      hazards_(hazards),
      arenas_(arenas),
      shares_(shares),
      journal_(journal) {}

Status Leases::CheckRoom(const Session& session, uint64_t more) const {
  const Limits& limits = config_.limits;
  if (session.leases.size() + more > limits.leases_per_session) {
    return AtLimit("TOO_MANY_LEASES", "leases_per_session", limits.leases_per_session);
  }
  return accounts_.CheckObjects(session, "TOO_MANY_LEASES", more * object_bytes::kLease);
}

void Leases::Add(Session& session, Share& share, LeaseId id) {
  session.leases.emplace_hint(session.leases.end(), id, &share);
  ++session.uses[share.arena].leases;
  ++session.account->leases;
  ++share.leases;
  ++count_;
  // A receiver may keep what is sent to it.
  if (session.peer.uid == share.maker_uid || share.channel != ChannelId{}) return;
  const auto reader = std::ranges::find(share.readers, session.account.get(), &Share::Reader::account);
  if (reader != share.readers.end()) {
    ++reader->leases;
    return;
  }
  share.readers.push_back({session.account.get(), 1});
  Accounts::Lease(*session.account, share);
}

void Leases::Restore(Session& session, Share& share, LeaseId id, Session::RecordedLease recorded) {
  Add(session, share, id);
  session.lease_records.emplace(id, recorded);
}

std::vector<Received> Leases::Of(const Session& session, uint64_t request) {
  std::vector<Received> its;
  for (const auto& [lease, recorded] : session.lease_records) {
    if (recorded.request == request) its.push_back({lease, recorded.receiver});
  }
  return its;
}

LeasedShare Leases::Grant(Session& session, Share& share, uint64_t request, ChannelEndId receiver) {
  const LeaseId id{ids.Next()};
  Add(session, share, id);
  if (journal_.keeps()) {
    const auto record = journal_.Add(record::kLease, record::Lease{.id = Number(id),
                                                                   .session = Number(session.id),
                                                                   .share = Number(share.facts->id),
                                                                   .request = request,
                                                                   .receiver = Number(receiver)});
    session.lease_records.emplace(id, Session::RecordedLease{record, request, receiver});
  }
  LeasedShare leased{id,
                     share.facts,
                     share.arena->Describe(share.offset, share.size),
                     share.arena->immutability.value_or(Immutability::kByContract),
                     {},
                     receiver};
  if (share.arena->opaque.empty()) return leased;
  leased.handle.opaque = share.arena->opaque;
  arenas_.AddReader(session, *share.arena);
  return leased;
}

// The lease's record goes last: without it the next daemon would take a received share for one that is still queued.
bool Leases::End(Session& session, LeaseId lease) {
  const auto found = session.leases.find(lease);
  if (found == session.leases.end()) return false;
  Share& share = *found->second;
  session.leases.erase(found);
  Journal::Place record = 0;
  if (journal_.keeps()) {
    if (const auto recorded = session.lease_records.extract(lease); !recorded.empty())
      record = recorded.mapped().record;
  }
  if (session.awaiting.erase(lease) > 0) --share.awaiting;
  const auto use = session.uses.find(share.arena);
  if (--use->second.leases == 0 && !use->second.given) session.uses.erase(use);
  --share.leases;
  --count_;
  --session.account->leases;
  const auto reader = std::ranges::find(share.readers, session.account.get(), &Share::Reader::account);
  if (reader != share.readers.end() && --reader->leases == 0) {
    share.readers.erase(reader);
    Accounts::GiveBack(*session.account, share);
  }
  if (share.orphan_until.has_value() && !share.withdrawn) shares_.AwaitOrphan(share);
  shares_.Settle(share);
  journal_.Erase(record);
  return true;
}

void Leases::Undo(Session& session, const std::vector<LeasedShare>& leased) {
  for (const LeasedShare& one : leased) {
    events_.EmitRelease(session, one.lease);
    End(session, one.lease);
  }
}

Status Leases::CheckFence(const Session& session, const Share& share, bool final_only) const {
  if (share.fence.done()) return Ok();
  const Session* const maker = sessions_.Find(share.maker);
  // Reports of clients count only between processes of one user.
  const bool opens = maker != nullptr && maker->peer.uid == session.peer.uid && !session.peer.events.empty() &&
                     session.peer.events == maker->peer.events;
  if (opens && !final_only) return Ok();
  return FencePending(session, share);
}

void Leases::PassFence(Session& session, Share& share, LeasedShare* leased) {
  if (share.fence.done()) return;
  leased->fence = share.fence;
  session.awaiting.insert(leased->lease);
  ++share.awaiting;
}

void Leases::AddFence(Session& maker, Share& share) {
  if (share.fence.done()) return;
  maker.fenced.emplace(share.facts->id, &share);
  share.fenced_by = &maker;
  ++pending_fences_;
}

void Leases::EndFence(Session& maker, ShareId id, bool lost, EndedFences* ended) {
  const auto found = maker.fenced.find(id);
  if (found == maker.fenced.end()) return;  // reported before, or gone
  Share& share = *found->second;
  if (share.awaiting > 0) {
    ended->awaited.push_back(Number(id));
  } else {
    maker.fenced.erase(found);
    share.fenced_by = nullptr;
  }
  if (share.fence.done()) return;
  ended->finished.push_back(share.facts);
  if (lost) return LoseFence(share);
  FinishFence(share);
}

void Leases::LoseFence(Share& share) {
  ++lost_fences_total_;
  shares_.Lose(share, sessions_.Find(share.maker));
  FinishFence(share);
}

// The share may be destroyed.
void Leases::FinishFence(Share& share) {
  --pending_fences_;
  share.fence = {};
  share.unnoted = true;
  hazards_.Insert(share);
  shares_.Settle(share);
}

uint64_t Leases::HistoryRoom(const Share& share) const {
  const uint64_t has = accounts_.At(share.maker_uid).object_bytes();
  const uint64_t own = share.history == nullptr ? 0 : share.history->bytes();
  const uint64_t of_uid = config_.limits.object_bytes_per_uid / 2;  // the other half is for what clients ask for
  const uint64_t left = of_uid - std::min(of_uid, has - std::min(has, own));
  return std::min<uint64_t>(config_.limits.history_bytes_per_share, left);
}

void Leases::ChargeHistory(const Share& share, uint64_t before) {
  const uint64_t after = share.history->bytes();
  // wraps round if it decreases
  if (after != before) accounts_.At(share.maker_uid).description_bytes += after - before;
}

void Leases::NoteReader(const Session& session, Share& share, std::string_view note) {
  if (share.withdrawn) return;  // no session can inspect it
  if (share.history == nullptr) share.history = std::make_unique<History>();
  const uint64_t before = share.history->bytes();
  share.history->Read(VisitorOf(session), note, NowNs(), HistoryRoom(share));
  ChargeHistory(share, before);
}

void Leases::Renote(SessionId session, Share& share, std::string_view note) {
  const uint64_t before = share.history->bytes();
  share.history->Renote(session, note, HistoryRoom(share));
  ChargeHistory(share, before);
}

}  // namespace arraybridge::daemon
