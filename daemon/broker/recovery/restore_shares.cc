// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "daemon/broker/ledger/times.h"
#include "daemon/broker/recovery/recovery.h"

namespace arraybridge::daemon {
namespace {

constexpr size_t kLostNamedMax = 100;

}  // namespace

// In the order in which they were published, so that the last one of a name keeps it.
void Broker::Recovery::Shares() {
  shares_.reserve(Of(record::kShare).size());
  std::unordered_map<Namespace*, size_t> named;  // at most
  for (const Records::Entry& entry : Of(record::kShare)) {
    const auto its = entry.Read<record::Share>();
    const Arena* const arena = state_.arenas.Find(ArenaId{its.arena});
    if (arena != nullptr && !its.withdrawn) ++named[arena->ns()];
  }
  for (const auto& [ns, count] : named) ns->ReserveNames(count);
  for (const Records::Entry& entry : Of(record::kShare)) {
    const auto its = entry.Read<record::Share>();
    const Status restored = RestoreShare(its, entry.place);
    if (restored.ok()) continue;
    channels_.NoteSent(state_, its, nullptr);
    if (!its.withdrawn || its.queued) Lose(ArenaId{its.arena}, std::string(its.name), restored.message());
    journal().Erase(entry.place);
  }
}

Share* Broker::Recovery::FindShare(uint64_t id) const {
  const auto found = std::ranges::lower_bound(shares_, id, {}, &std::pair<uint64_t, Share*>::first);
  return found == shares_.end() || found->first != id ? nullptr : found->second;
}

void Broker::Recovery::Lose(ArenaId arena, std::string share, std::string why) {
  ++recovered_.lost_shares;
  if (recovered_.lost.size() >= kLostNamedMax) return;
  const Arena* const found = state_.arenas.Find(arena);
  const LostArena lost = WhyLost(Number(arena));
  recovered_.lost.push_back({found == nullptr ? lost.ns : found->ns()->name(),
                             found == nullptr ? lost.ns_uid : found->ns()->uid(), std::move(share), std::move(why)});
}

Broker::Recovery::LostArena Broker::Recovery::WhyLost(uint64_t arena) const {
  const auto lost = arenas_lost_.find(arena);
  return lost == arenas_lost_.end() ? LostArena() : lost->second;
}

Status Broker::Recovery::RestoreShare(const record::Share& its, Journal::Place place) {
  Arena* const arena = state_.arenas.Find(ArenaId{its.arena});
  if (arena == nullptr) return FailedPrecondition(WhyLost(its.arena).why);
  if (its.pending) return FailedPrecondition("its maker had not reported the completion of its event");
  Share* const root = its.root == 0 ? nullptr : FindShare(its.root);
  if (its.root != 0 && root == nullptr) return FailedPrecondition("the share that it forwarded is lost");
  const bool forwards = its.root != 0 || its.kept;
  AB_RETURN_IF_ERROR(forwards ? arena->CheckInside(its.offset, its.size) : arena->CheckRange(its.offset, its.size));

  auto facts = std::make_shared<ShareFacts>();
  facts->id = ShareId{its.id};
  facts->ns = arena->ns()->name();
  facts->generation = its.generation;
  facts->name = its.name;
  facts->description = its.description;
  facts->unnamed = its.unnamed;
  auto share = std::make_unique<Share>();
  share->note = its.note;
  share->stored = StoredAs(its.file, its.durable);
  share->rank = RankOf(its.rank);
  if (client_ == nullptr || *client_ != its.maker_client)
    client_ = std::make_shared<const std::string>(its.maker_client);
  share->maker_client = client_;
  if (its.channel != 0) {
    facts->sent = std::make_unique<const SentFacts>(
        SentFacts{its.sequence, its.stream, its.time_ns, its.maker_process_id, share->maker_client});
    share->channel = ChannelId{its.channel};
    share->sent_by = ChannelEndId{its.sending};
  }
  share->facts = std::move(facts);
  share->ns = arena->ns();
  share->arena = arena;
  share->offset = its.offset;
  share->size = its.size;
  share->maker = SessionId{its.maker};
  share->maker_uid = its.maker_uid;
  share->maker_process_id = its.maker_process_id;
  share->request = its.request;
  share->record = place;
  share->born = TimeOf(its.born);
  share->expires = TimeIfAny(its.expires);
  share->orphan_until = TimeIfAny(its.orphan_until);
  share->withdrawn = its.withdrawn;
  Account& account = *state_.accounts.Of(share->maker_uid);
  ++account.shares;
  account.description_bytes += DescriptionBytes(*share);
  if (!forwards) {
    arena->Carve(share->offset, share.get());
  } else if (its.root != 0) {
    Forwards::Restore(state_.sessions.Find(share->maker), *share, *root);
  } else {
    Forwards::RestoreKept(state_.sessions.Find(share->maker), *share, channels_.RangesOf(its.direct_channel), its.bit);
  }
  Namespace& ns = *arena->ns();
  if (!share->withdrawn) {
    share->unread = !share->facts->unnamed;
    if (share->unread) ++state_.shares.unread;
  }
  Share* added = ns.TryAdd(share);
  if (added == nullptr) {  // the previous daemon was killed before the other share lost the name
    state_.shares.TakeNameOf(*ns.FindByName(share->facts->name));
    added = ns.TryAdd(share);
  }
  shares_.emplace_back(its.id, added);
  if (its.channel != 0) channels_.NoteSent(state_, its, added);
  Session* const maker = state_.sessions.Find(added->maker);
  if (maker != nullptr && its.request != 0) {
    const Immutability sealed = arena->immutability.value_or(Immutability::kByContract);
    maker->published.push_back({its.request, added->facts, sealed});
  }
  if (!added->withdrawn) state_.shares.Limit(*added);
  return Ok();
}

// A catalogue that cannot be taken over is closed as soon as the store drops it: clients ask for the new one.
void Broker::Recovery::Catalogues() {
  for (const Records::Entry& entry : Of(record::kCatalogue)) {
    const auto its = entry.Read<record::Page>();
    const std::string name = StoredName(kStoredCatalogue, entry.id);
    Namespace* const ns = state_.namespaces.Find({its.ns_uid.value_or(0), its.ns});
    auto adopted = Catalogue::Adopt(files_.Take(name));
    if (!adopted.ok()) {
      journal().Erase(entry.place);
      continue;
    }
    const std::shared_ptr<Catalogue> catalogue = *std::move(adopted);
    if (ns == nullptr || ns->hazards.catalogue != nullptr) {
      // A client that finds a name does not look whether the catalogue is closed, so none may be found.
      catalogue->ForEachUsed([](const Catalogue::Used&) { return false; });
      catalogue->Close();
      journal().Erase(entry.place);
      continue;
    }
    ns->hazards.catalogue = catalogue;
    ns->hazards.catalogue_record = entry.place;
    ++state_.accounts.Of(ns->uid())->catalogues;
    catalogue->stored = journal().Has(name);
    catalogue->ForEachUsed([&](const Catalogue::Used& used) {
      Share* const share = FindShare(used.share);
      return share != nullptr && share->ns == ns && !share->entry && ns->hazards.Restore(*share, used);
    });
  }
}

}  // namespace arraybridge::daemon
