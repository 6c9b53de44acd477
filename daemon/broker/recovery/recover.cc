// Recovery builds the broker's tables from the journal and the stored descriptors of the previous daemon. The order is:
// quotas, subjects, sessions, direct channels, arenas with their charges, channels, shares with their names,
// catalogues, hazard pages, leases, tickets, queues; then what the previous daemon would have done by now.
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "daemon/broker/recovery/channel_recovery.h"
#include "daemon/broker/recovery/reading.h"
#include "daemon/broker/recovery/recovered.h"
#include "daemon/broker/state.h"

namespace arraybridge {
namespace {

constexpr size_t kLostNamedMax = 100;

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

}  // namespace

class Broker::Recovery {
 public:
  Recovery(State& state, Records records, StoredFiles& files)
      : state_(state), records_(std::move(records)), files_(files), channels_(records_, files) {}

  Recovered Run(const std::vector<LiveClient>& clients) AB_EXCLUDES(state_.mutex) {
    const MutexLock lock(state_.mutex);
    Quotas();
    Subjects();
    Sessions(clients);
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

 private:
  using Table = Records::Table;
  Table& Of(record::Kind kind) { return records_.Of(kind); }
  Journal& journal() { return state_.journal; }

  struct LostArena {
    uint32_t ns_uid = kSharedByUsers;
    std::string ns;
    std::string why = "its arena is not in the journal";
  };

  void Lose(ArenaId arena, std::string share, std::string why) AB_REQUIRES(state_.mutex);
  LostArena WhyLost(uint64_t arena) const;

  void Quotas() AB_REQUIRES(state_.mutex);
  void Subjects();
  void Sessions(const std::vector<LiveClient>& clients) AB_REQUIRES(state_.mutex);
  void Arenas() AB_REQUIRES(state_.mutex);
  Status RestoreArena(const Records::Entry& entry) AB_REQUIRES(state_.mutex);
  void Shares() AB_REQUIRES(state_.mutex);
  Status RestoreShare(const Records::Entry& entry) AB_REQUIRES(state_.mutex);
  void Catalogues() AB_REQUIRES(state_.mutex);
  void HazardPages() AB_REQUIRES(state_.mutex);
  void Leases() AB_REQUIRES(state_.mutex);
  void Tickets() AB_REQUIRES(state_.mutex);
  void Queues() AB_REQUIRES(state_.mutex);
  void ReturnedRanges() AB_REQUIRES(state_.mutex);
  void Settle() AB_REQUIRES(state_.mutex);

  State& state_;
  Records records_;
  StoredFiles& files_;
  ChannelRecovery channels_;
  std::vector<Journal::Place> received_;  // records of leases that go after the records of their shares
  Recovered recovered_;
  std::unordered_map<uint64_t, Share*> shares_;          // by id
  std::unordered_map<uint64_t, LostArena> arenas_lost_;  // by id
};

void Broker::Recovery::Quotas() {
  for (const auto& [place, entry] : Of(record::kQuota)) {
    Reading<record::Quota> quota(entry.content);
    state_.namespaces.RestoreQuota(quota->ns_uid, quota.Text(quota->ns_bytes), quota->bytes, entry.place);
  }
}

void Broker::Recovery::Subjects() {
  for (const auto& [number, entry] : Of(record::kSubject)) {
    Reading<record::Subject> its(entry.content);
    recovered_.subjects.push_back({static_cast<uint32_t>(number), Lines(its.Text(its->names_bytes))});
  }
  // A number whose record was damaged is not given to another subject.
  const auto last = static_cast<uint32_t>(journal().word(record::kLastSubject));
  if (last != 0 && std::ranges::find(recovered_.subjects, last, &Subject::number) == recovered_.subjects.end()) {
    recovered_.subjects.push_back({last, {}});
  }
}

void Broker::Recovery::Sessions(const std::vector<LiveClient>& clients) {
  std::unordered_map<uint64_t, const LiveClient*> live;
  for (const LiveClient& client : clients) live.emplace(Number(client.session), &client);
  for (const auto& [id, entry] : Of(record::kSession)) {
    Reading<record::Session> its(entry.content);
    const auto client = live.find(id);
    const bool lives = client != live.end() && client->second->peer.uid == its->uid;
    its.Text(size_t{its->client_bytes} + its->refused_bytes + its->events_bytes + its->secret_bytes + its->gpus_bytes);
    const Door door{static_cast<uint8_t>(its.Rest<record::ByDoor>().door)};
    const bool awaited = door != Door::kLifeline;
    its = Reading<record::Session>(entry.content);
    if (!lives && !awaited && !channels_.Needs(id)) {
      journal().Erase(entry.place);
      continue;
    }
    auto session = std::make_unique<Session>();
    session->id = SessionId{id};
    session->token = its->token;
    if (lives) session->peer = client->second->peer;
    session->peer.uid = its->uid;
    if (!lives) session->peer.gid = its->gid;
    session->peer.process_id = its->process_id;
    session->peer.door = door;
    session->awaited = awaited;
    if (const auto subject = std::ranges::find(recovered_.subjects, its->uid, &Subject::number);
        door == Door::kTcp && subject != recovered_.subjects.end()) {
      session->peer.subject = subject->names;
    }
    session->peer.client = its.Text(its->client_bytes);
    session->peer.refused = its.Text(its->refused_bytes);
    session->peer.events = its.Text(its->events_bytes);
    session->peer.token = its.Text(its->secret_bytes);
    session->peer.gpus = Lines(its.Text(its->gpus_bytes));
    session->peer.kinds.clear();
    for (const HandleKind kind : {HandleKind::kMemfd, HandleKind::kCudaVmm, HandleKind::kCudaIpc}) {
      if ((its->kinds >> static_cast<unsigned>(kind) & 1) != 0) session->peer.kinds.push_back(kind);
    }
    session->client = std::make_shared<const std::string>(session->peer.client);
    session->born = TimeOf(its->born);
    session->record = entry.place;
    session->account = state_.accounts.Of(session->peer.uid);
    state_.sessions.Restore(std::move(session));
    (awaited ? recovered_.awaited : lives ? recovered_.sessions : recovered_.gone).push_back(SessionId{id});
  }
}

void Broker::Recovery::Arenas() {
  for (const auto& [id, entry] : Of(record::kArena)) {
    const Status restored = RestoreArena(entry);
    if (restored.ok()) continue;
    Reading<record::Arena> its(entry.content);
    arenas_lost_.emplace(id, LostArena{its->ns_uid, its.Text(its->ns_bytes), restored.message()});
    journal().Erase(entry.place);
  }
}

Status Broker::Recovery::RestoreArena(const Records::Entry& entry) {
  Reading<record::Arena> its(entry.content);
  const std::string ns = its.Text(its->ns_bytes);
  const Device device{its->device_kind, its->device_id, its.Text(its->uuid_bytes)};
  const auto kind = static_cast<HandleKind>(its->kind);
  const std::string name = StoredName(kStoredArena, its->id);
  UniqueFd file = files_.Take(name);
  MemoryBackend* backend = nullptr;
  for (MemoryBackend* const each : state_.backends.all()) {
    const std::vector<Device> devices = each->devices();
    if (each->kind() == kind && std::ranges::find(devices, device) != devices.end()) backend = each;
  }
  if (backend == nullptr) return FailedPrecondition("its device is not served any more");
  if (!file.valid()) return FailedPrecondition(NameOf(kind), " memory ends with the daemon that allocated it");
  auto block = backend->Adopt(device, its->size, std::move(file));
  if (!block.ok()) return block.status();
  const auto owner = state_.namespaces.FindOrMake({its->ns_uid, ns}, its->maker_uid);
  if (!owner.ok()) return owner.status();
  Session* const maker = state_.sessions.Find(SessionId{its->maker});
  auto arena = std::make_unique<Arena>(ArenaId{its->id}, its->generation, *owner, maker,
                                       (*owner)->ChargeAgain(its->size, state_.accounts.Of(its->maker_uid)->memory),
                                       *std::move(block), device, kind);
  if (its->writable == 0) arena->writer = nullptr;
  arena->immutability = arena->block()->sealed();
  if (!arena->immutability && its->sealed != 0) arena->immutability = Immutability(its->sealed - 1);
  arena->maker_uid = its->maker_uid;
  arena->request = its->request;
  arena->record = entry.place;
  arena->stored = journal().Has(name);
  recovered_.bytes += its->size;
  state_.arenas.Restore(maker, std::move(arena));
  return Ok();
}

// In the order in which they were published, so that the last one of a name keeps it.
void Broker::Recovery::Shares() {
  for (const auto& [id, entry] : Of(record::kShare)) {
    const Status restored = RestoreShare(entry);
    if (restored.ok()) continue;
    Reading<record::Share> its(entry.content);
    const bool queued = (its->flags & record::kQueued) != 0;
    const bool wanted = (its->flags & record::kWithdrawn) == 0 || queued;
    const std::string name = its.Text(its->name_bytes);
    its.Text(size_t{its->description_bytes} + its->note_bytes + its->client_bytes);
    channels_.NoteSent(state_, its.Rest<record::Sent>(), its->request, queued, nullptr);
    if (wanted) Lose(ArenaId{its->arena}, name, restored.message());
    journal().Erase(entry.place);
  }
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

Status Broker::Recovery::RestoreShare(const Records::Entry& entry) {
  Reading<record::Share> its(entry.content);
  const auto has = [&](record::ShareFlag flag) { return (its->flags & flag) != 0; };
  Arena* const arena = state_.arenas.Find(ArenaId{its->arena});
  if (arena == nullptr) return FailedPrecondition(WhyLost(its->arena).why);
  if (has(record::kPending)) return FailedPrecondition("its maker had not reported the completion of its event");
  const auto root = shares_.find(its->root);
  if (its->root != 0 && root == shares_.end()) return FailedPrecondition("the share that it forwarded is lost");
  const bool forwards = its->root != 0 || has(record::kKept);
  AB_RETURN_IF_ERROR(forwards ? arena->CheckInside(its->offset, its->size) : arena->CheckRange(its->offset, its->size));

  auto facts = std::make_shared<ShareFacts>();
  facts->id = ShareId{its->id};
  facts->ns = arena->ns()->name();
  facts->generation = its->generation;
  facts->name = its.Text(its->name_bytes);
  facts->description = its.Text(its->description_bytes);
  facts->unnamed = has(record::kUnnamed);
  auto share = std::make_unique<Share>();
  share->note = its.Text(its->note_bytes);
  share->maker_client = std::make_shared<const std::string>(its.Text(its->client_bytes));
  const auto sent = its.Rest<record::Sent>();
  if (sent.channel != 0) {
    facts->sent = std::make_unique<const SentFacts>(
        SentFacts{sent.sequence, sent.stream, sent.time_ns, its->maker_process_id, share->maker_client});
    share->channel = ChannelId{sent.channel};
    share->sent_by = ChannelEndId{sent.sending};
  }
  share->facts = std::move(facts);
  share->ns = arena->ns();
  share->arena = arena;
  share->offset = its->offset;
  share->size = its->size;
  share->maker = SessionId{its->maker};
  share->maker_uid = its->maker_uid;
  share->maker_process_id = its->maker_process_id;
  share->request = its->request;
  share->record = entry.place;
  share->born = TimeOf(its->born);
  if (its->expires != 0) share->expires = TimeOf(its->expires);
  if (its->orphan_until != 0) share->orphan_until = TimeOf(its->orphan_until);
  share->withdrawn = has(record::kWithdrawn);
  Account& account = *state_.accounts.Of(share->maker_uid);
  ++account.shares;
  account.description_bytes += DescriptionBytes(*share);
  if (!forwards) {
    arena->Carve(share->offset, share.get());
  } else if (its->root != 0) {
    Forwards::Restore(state_.sessions.Find(share->maker), *share, *root->second);
  } else {
    Forwards::RestoreKept(state_.sessions.Find(share->maker), *share, channels_.RangesOf(sent.direct_channel),
                          sent.bit);
  }
  Namespace& ns = *arena->ns();
  if (!share->withdrawn) {
    if (Share* const old = ns.FindByName(share->facts->name); old != nullptr) state_.shares.TakeNameOf(*old);
    share->unread = !share->facts->unnamed;
    if (share->unread) ++state_.shares.unread;
  }
  Share* const added = ns.Add(std::move(share));
  shares_.emplace(its->id, added);
  if (sent.channel != 0) channels_.NoteSent(state_, sent, its->request, has(record::kQueued), added);
  Session* const maker = state_.sessions.Find(added->maker);
  if (maker != nullptr && its->request != 0) {
    const Immutability sealed = arena->immutability.value_or(Immutability::kByContract);
    maker->published.emplace(its->request,
                             PublishedShare{added->facts->id, added->facts->name, its->generation, sealed, {}});
  }
  if (!added->withdrawn) state_.shares.Limit(*added);
  return Ok();
}

// A catalogue that cannot be taken over is closed for its clients as soon as the store drops it: they ask for the new
// one by a call.
void Broker::Recovery::Catalogues() {
  for (const auto& [page, entry] : Of(record::kCatalogue)) {
    Reading<record::Page> its(entry.content);
    const std::string name = StoredName(kStoredCatalogue, page);
    Namespace* const ns = state_.namespaces.Find({its->ns_uid, its.Text(its->ns_bytes)});
    auto adopted = Catalogue::Adopt(files_.Take(name));
    if (!adopted.ok()) {
      journal().Erase(entry.place);
      continue;
    }
    const std::shared_ptr<Catalogue> catalogue = *std::move(adopted);
    if (ns == nullptr || ns->hazards.catalogue != nullptr) {
      catalogue->Close();
      journal().Erase(entry.place);
      continue;
    }
    ns->hazards.catalogue = catalogue;
    ns->hazards.catalogue_record = entry.place;
    ++state_.accounts.Of(its->ns_uid)->catalogues;
    catalogue->stored = journal().Has(name);
    catalogue->ForEachUsed([&](const Catalogue::Used& used) {
      const auto found = shares_.find(used.share);
      if (found == shares_.end() || found->second->ns != ns || found->second->entry) return false;
      return ns->hazards.Restore(*found->second, used);
    });
  }
}

void Broker::Recovery::HazardPages() {
  for (const auto& [page, entry] : Of(record::kHazardPage)) {
    Reading<record::Page> its(entry.content);
    const std::string name = StoredName(kStoredHazardPage, page);
    Namespace* const ns = state_.namespaces.Find({its->ns_uid, its.Text(its->ns_bytes)});
    Session* const session = state_.sessions.Find(SessionId{its->session});
    auto adopted = HazardPage::Adopt(files_.Take(name));
    const bool wanted = adopted.ok() && ns != nullptr && session != nullptr && ns->hazards.catalogue != nullptr &&
                        ns->hazards.PageOf(*session) == nullptr;
    if (!wanted) {
      journal().Erase(entry.place);
      continue;
    }
    std::shared_ptr<HazardPage> taken = *std::move(adopted);
    taken->stored = journal().Has(name);
    state_.hazards.AddPage(*ns, *session, taken, entry.place);
  }
}

void Broker::Recovery::Leases() {
  for (const auto& [id, entry] : Of(record::kLease)) {
    const Reading<record::Lease> its(entry.content);
    Session* const session = state_.sessions.Find(SessionId{its->session});
    const auto share = shares_.find(its->share);
    const ChannelEndId receiver{its.Rest<record::Received>().receiver};
    if (share == shares_.end() || (session == nullptr && receiver == ChannelEndId{})) {
      journal().Erase(entry.place);
      continue;
    }
    if (receiver != ChannelEndId{}) channels_.NoteReceived(state_, session, LeaseId{id}, receiver, *share->second);
    if (session != nullptr) {
      state_.leases.Restore(*session, *share->second, LeaseId{id}, {entry.place, its->request, receiver});
    } else {
      received_.push_back(entry.place);
    }
  }
}

// They wait for their session's client as long as the session does.
void Broker::Recovery::Tickets() {
  const Clock::time_point awaited_until = Clock::now() + state_.config.orphan_grace.get();
  for (const auto& [place, entry] : Of(record::kTicket)) {
    const Reading<record::Ticket> its(entry.content);
    Session* const session = state_.sessions.Find(SessionId{its->session});
    if (session == nullptr) {
      journal().Erase(entry.place);
      continue;
    }
    session->tickets.Add({its->token, ArenaId{its->arena}, Access(its->access),
                          std::max(TimeOf(its->deadline), awaited_until), entry.place});
  }
}

void Broker::Recovery::Queues() {
  for (const auto& [page, entry] : Of(record::kQueue)) {
    Reading<record::Page> its(entry.content);
    const std::string name = StoredName(kStoredQueue, page);
    Session* const session = state_.sessions.Find(SessionId{its->session});
    UniqueFd requests = files_.Take(name);
    UniqueFd completions = files_.Take(name);
    // Holders return the entries of one name in any order. Only the completions are the daemon's to write.
    const bool swapped = (::fcntl(requests.get(), F_GETFL) & O_ACCMODE) != O_RDONLY;
    if (swapped) std::swap(requests, completions);
    auto adopted = SessionQueue::Adopt(its->session, std::move(requests), std::move(completions));
    if (session == nullptr || session->queue != nullptr || !adopted.ok()) {
      journal().Erase(entry.place);
      continue;
    }
    OpenQueue open{session->id, std::nullopt, its.Text(its->ns_bytes), *std::move(adopted)};
    if (its->has_owner != 0) open.owner = its->ns_uid;
    open.queue->stored = journal().Has(name);
    session->queue_record = entry.place;
    state_.sessions.AddQueue(*session, std::move(open));
  }
}

void Broker::Recovery::ReturnedRanges() {
  for (const auto& [place, entry] : Of(record::kReturned)) {
    const Reading<record::Returned> its(entry.content);
    Session* const session = state_.sessions.Find(SessionId{its->session});
    const Arena* const arena = session == nullptr ? nullptr : state_.arenas.FindWritable(*session, ArenaId{its->arena});
    // The previous daemon may have been killed between the records of the range and of its share.
    if (arena == nullptr || !arena->CheckRange(its->offset, its->size).ok()) {
      journal().Erase(entry.place);
      continue;
    }
    session->returned.push_back({ArenaId{its->arena}, its->offset, its->size, entry.place});
  }
}

void Broker::Recovery::Settle() {
  std::vector<ShareId> ids;  // a share may be destroyed by the end of another one
  for (const auto& [id, share] : shares_) ids.push_back(ShareId{id});
  std::ranges::sort(ids);
  recovered_.shares = ids.size();
  const Clock::time_point now = Clock::now();
  std::vector<std::pair<Namespace*, ShareId>> all;
  for (const ShareId id : ids) all.emplace_back(shares_.at(Number(id))->ns, id);
  for (const auto& [ns, id] : all) {
    const auto found = ns->shares().find(id);
    if (found == ns->shares().end()) continue;
    Share& share = *found->second;
    state_.hazards.Insert(share);
    if (share.withdrawn) {
      state_.shares.Settle(share);
    } else if (share.orphan_until) {
      state_.shares.AwaitOrphan(share);
    } else if (state_.sessions.Find(share.maker) == nullptr) {
      Session gone;
      gone.id = share.maker;
      gone.ended = now;
      state_.shares.LeaveBehind(share, gone);
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
  if (!opened.ok()) return opened.status();
  RecordFile& file = **opened;
  if (fresh) {
    for (const std::string& unknown : stored.names()) store.Remove(unknown);  // nobody can say what they are
    const DescriptorStore::Entry entry{name, file.file()};
    AB_RETURN_IF_ERROR(store.Store({&entry, 1}));
  }
  Records records;
  std::vector<uint32_t> replaced;
  const uint64_t damaged = file.Scan([&](const RecordFile::Record& record) {
    if (const uint32_t old = records.Add(record); old != 0) replaced.push_back(old);
  });
  for (const uint32_t place : replaced) file.Erase(place);

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
  if (const auto published = found->published.find(request); published != found->published.end()) {
    return published->second;
  }
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

Status Broker::KeepSubject(uint32_t number, std::span<const std::string> names) {
  const MutexLock lock(state_->mutex);
  uint64_t bytes = 0;
  for (const std::string& name : names) bytes += name.size() + 1;
  AB_RETURN_IF_ERROR(state_->journal.CheckRoom(bytes));
  state_->journal.PutSubject(number, names);
  if (state_->journal.keeps()) state_->journal.word(record::kLastSubject) = number;
  return Ok();
}

void Broker::Resumed(SessionId session) {
  const MutexLock lock(state_->mutex);
  if (Session* const found = state_->sessions.Find(session); found != nullptr) found->published.clear();
}

Result<StoreGuard> Broker::StoreLifeline(SessionId session, int socket) const {
  return state_->journal.Store(StoredName(kStoredLifeline, Number(session)), {&socket, 1});
}

StoreGuard Broker::StoredLifeline(SessionId session) const {
  return state_->journal.Has(StoredName(kStoredLifeline, Number(session)));
}

bool Broker::is_stored() const { return state_->journal.keeps(); }

}  // namespace arraybridge
