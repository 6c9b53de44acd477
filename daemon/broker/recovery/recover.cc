// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "daemon/broker/recovery/recovery.h"

namespace arraybridge::daemon {

Recovered Broker::Recovery::Run(const std::vector<LiveClient>& clients) {
  const MutexLock lock(state_.mutex);
  Quotas();
  Sessions(clients);
  // Claims are not in the journal: their holders renew them first.
  if (!state_.sessions.all().empty()) state_.renewals_until = Clock::now() + std::chrono::seconds(3);
  channels_.DirectChannels(state_);
  Arenas();
  channels_.Channels(state_);
  Shares();
  Catalogues();
  HazardPages();
  Leases();
  Tickets();
  channels_.Finish(state_, &recovered_);
  Queues();
  ReturnedRanges();
  Settle();
  return std::move(recovered_);
}

void Broker::Recovery::Quotas() {
  for (const Records::Entry& entry : Of(record::kQuota)) {
    const auto quota = entry.Read<record::Quota>();
    state_.namespaces.RestoreQuota(quota.ns_uid, std::string(quota.ns), quota.bytes, entry.place);
  }
}

void Broker::Recovery::Arenas() {
  for (const Records::Entry& entry : Of(record::kArena)) {
    const auto its = entry.Read<record::Arena>();
    const Status restored = its.kind == 0 ? Tiers::Restore(state_.namespaces, state_.arenas, its, entry.place)
                                          : RestoreArena(its, entry.place);
    if (restored.ok()) continue;
    arenas_lost_.emplace(entry.id, LostArena{its.ns_uid, std::string(its.ns), restored.message()});
    journal().Erase(entry.place);
  }
}

Status Broker::Recovery::RestoreArena(const record::Arena& its, Journal::Place place) {
  const Device device{its.device_kind, its.device_id, std::string(its.device_uuid)};
  const auto kind = static_cast<HandleKind>(its.kind);
  const std::string name = StoredName(kStoredArena, its.id);
  UniqueFd file = files_.Take(name);
  MemoryBackend* backend = nullptr;
  for (MemoryBackend* const each : state_.backends.all()) {
    const std::vector<Device> devices = each->devices();
    if (each->kind() == kind && std::ranges::find(devices, device) != devices.end()) backend = each;
  }
  if (backend == nullptr) return FailedPrecondition("its device is not served any more");
  if (!file.valid()) return FailedPrecondition(NameOf(kind), " memory ends with the daemon that allocated it");
  AB_ASSIGN_OR_RETURN(auto block, backend->Adopt(device, its.size, std::move(file)));
  const auto owner = state_.namespaces.FindOrMake({its.ns_uid, its.ns}, its.maker_uid);
  if (!owner.ok()) return owner.status();
  Session* const maker = state_.sessions.Find(SessionId{its.maker});
  auto arena = std::make_unique<Arena>(ArenaId{its.id}, its.generation, *owner, maker,
                                       (*owner)->ChargeAgain(its.size, state_.accounts.Of(its.maker_uid)->memory),
                                       std::move(block), device, kind);
  if (!its.writable) arena->writer = nullptr;
  arena->immutability = arena->block()->sealed();
  if (!arena->immutability && its.sealed) arena->immutability = Immutability(*its.sealed);
  arena->maker_uid = its.maker_uid;
  arena->request = its.request;
  arena->record = place;
  arena->stored = journal().Has(name);
  recovered_.bytes += its.size;
  state_.arenas.Restore(maker, std::move(arena));
  return Ok();
}

void Broker::Recovery::Settle() {
  recovered_.shares = shares_.size();
  const Clock::time_point now = Clock::now();
  Session gone;
  gone.ended = now;
  // The end of a share ends no other one but its root, which comes before it.
  for (const auto& [id, share] : shares_) {
    state_.hazards.Insert(*share);
    if (share->withdrawn) {
      state_.shares.Settle(*share);
    } else if (share->orphan_until) {
      state_.shares.AwaitOrphan(*share);
    } else if (state_.sessions.Find(share->maker) == nullptr) {
      gone.id = share->maker;
      state_.shares.LeaveBehind(*share, gone);
    }
  }
  for (const auto& [id, session] : state_.sessions.all()) {
    auto& published = session->published;
    if (!std::ranges::is_sorted(published, {}, &Session::Published::request)) {
      std::ranges::stable_sort(published, {}, &Session::Published::request);
    }
  }
  for (const Journal::Place lease : received_) journal().Erase(lease);
  channels_.Settle(state_, now);
  state_.arenas.RetireIdle();
  state_.namespaces.DropUnused();
  state_.flags.sweep_wanted.store(true);
}

Result<Recovered> Broker::Recover(DescriptorStore& store, std::vector<StoredDescriptor> files,
                                  const std::vector<LiveClient>& clients) {
  State& state = *state_;
  StoredFiles stored(std::move(files));
  const std::string name = StoredName(kStoredJournal, 0);
  UniqueFd journal = stored.Take(name);
  const bool fresh = !journal.valid();
  auto opened = fresh ? RecordFile::Create() : RecordFile::Adopt(std::move(journal));
  if (!opened.ok() && fresh) {
    return ResourceExhausted(
               opened.status().message(), "; it needs ", RecordFile::kSlotsMax * RecordFile::kSlotBytes,
               " bytes of address space and of a file, which cost no memory: raise ulimit -v and ulimit -f")
        .Because("NO_JOURNAL");
  }
  if (!opened.ok()) return opened.status();
  RecordFile& file = **opened;
  if (fresh) {
    for (const std::string& unknown : stored.names()) store.Remove(unknown);  // nobody can say what they are
    const DescriptorStore::Entry entry{name, file.file()};
    AB_RETURN_IF_ERROR(store.Store({&entry, 1}));
  }
  Records records;
  const uint64_t damaged = file.Scan([&](const RecordFile::Record& record) { records.Add(record); });
  for (const uint32_t place : records.Sort()) file.Erase(place);

  {
    const MutexLock lock(state.mutex);
    state.journal.Begin(*std::move(opened), store);
    Journal& words = state.journal;
    if (fresh) {
      std::memcpy(&words.word(record::kBrokerIdLow), state.broker_id.data(), sizeof(uint64_t));
      std::memcpy(&words.word(record::kBrokerIdHigh), state.broker_id.data() + sizeof(uint64_t), sizeof(uint64_t));
      words.word(record::kBegan) = static_cast<uint64_t>(std::time(nullptr));
    }
    std::memcpy(state.broker_id.data(), &words.word(record::kBrokerIdLow), sizeof(uint64_t));
    std::memcpy(state.broker_id.data() + sizeof(uint64_t), &words.word(record::kBrokerIdHigh), sizeof(uint64_t));
    state.shares.ids.ContinueIn(words.word(record::kLastShare));
    state.shares.generations.ContinueIn(words.word(record::kLastGeneration));
    state.arenas.ids.ContinueIn(words.word(record::kLastArena));
    state.sessions.ids.ContinueIn(words.word(record::kLastSession));
    state.leases.ids.ContinueIn(words.word(record::kLastLease));
    state.channels.ids.ContinueIn(words.word(record::kLastChannel));
    state.channels.end_ids.ContinueIn(words.word(record::kLastChannelEnd));
    state.direct_channel_ids.ContinueIn(words.word(record::kLastDirectChannel));
  }
  Recovery recovery(state, std::move(records), stored);
  Recovered recovered = recovery.Run(clients);
  recovered.damaged_records = damaged;
  recovered.life = ++state.journal.word(record::kLives);
  recovered.lost_shares_total = state.journal.word(record::kLostShares) += recovered.lost_shares;
  recovered.began_unix_s = static_cast<int64_t>(state.journal.word(record::kBegan));
  for (const std::string& unknown : stored.names()) store.Remove(unknown);
  return recovered;
}

std::optional<PublishedShare> Broker::TakeBackUnanswered(SessionId session, uint64_t request,
                                                         std::vector<ChannelId>* put_back) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  Session* const found = state.sessions.Find(session);
  if (found == nullptr) return std::nullopt;
  if (auto published = found->FindPublished(request)) return published;
  for (const auto& [id, end] : found->ends) {
    if (request != 0 && std::ranges::find(end.sends, request) != end.sends.end()) return PublishedShare{};
  }
  for (const Received& each : Leases::Of(*found, request)) {
    const Channel* const channel = state.PutBack(*found, each);
    if (channel == nullptr) state.leases.End(*found, each.lease);
    if (channel != nullptr && put_back != nullptr) put_back->push_back(channel->id());
  }
  std::vector<Arena*> arenas;
  for (const auto& [id, arena] : found->arenas) {
    if (arena->request == request && arena->writer == found) arenas.push_back(arena);
  }
  for (Arena* const arena : arenas) state.arenas.GiveBack(*arena);
  return std::nullopt;
}

void Broker::Resumed(SessionId session) {
  const MutexLock lock(state_->mutex);
  if (Session* const found = state_->sessions.Find(session); found != nullptr) found->published = {};
}

Result<StoreGuard> Broker::StoreLifeline(SessionId session, int socket) const {
  return state_->journal.Store(StoredName(kStoredLifeline, Number(session)), {&socket, 1});
}

StoreGuard Broker::StoredLifeline(SessionId session) const {
  return state_->journal.Has(StoredName(kStoredLifeline, Number(session)));
}

bool Broker::is_stored() const { return state_->journal.keeps(); }

}  // namespace arraybridge::daemon
