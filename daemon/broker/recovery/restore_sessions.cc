// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "daemon/broker/ledger/times.h"
#include "daemon/broker/recovery/recovery.h"

namespace arraybridge::daemon {
namespace {

Token TokenOf(std::string_view bytes) {
  Token token{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), token.size()), token.begin());
  return token;
}

}  // namespace
void Broker::Recovery::Sessions(const std::vector<LiveClient>& clients) {
  std::unordered_map<uint64_t, const LiveClient*> live;
  for (const LiveClient& client : clients) live.emplace(Number(client.session), &client);
  for (const Records::Entry& entry : Of(record::kSession)) {
    const auto its = entry.Read<record::Session>();
    const auto client = live.find(entry.id);
    const bool lives = client != live.end() && client->second->peer.uid == its.uid;
    const Door door{static_cast<uint8_t>(its.door)};
    const bool awaited = door == Door::kGrpc;
    if (!lives && !awaited && !channels_.Needs(entry.id)) {
      journal().Erase(entry.place);
      continue;
    }
    auto session = std::make_unique<Session>();
    session->id = SessionId{entry.id};
    session->token = TokenOf(its.token);
    if (lives) session->peer = client->second->peer;
    session->peer.uid = its.uid;
    if (!lives) session->peer.gid = its.gid;
    session->peer.process_id = its.process_id;
    session->peer.door = door;
    session->awaited = awaited;
    session->peer.client = its.client;
    session->peer.refused = its.refused;
    session->peer.events = its.events;
    session->peer.token = its.secret;
    session->peer.gpus.assign(its.gpus.begin(), its.gpus.end());
    session->peer.kinds.clear();
    for (const uint32_t kind : its.kinds) session->peer.kinds.push_back(HandleKind(kind));
    session->client = std::make_shared<const std::string>(session->peer.client);
    session->born = TimeOf(its.born);
    session->record = entry.place;
    session->account = state_.accounts.Of(session->peer.uid);
    state_.sessions.Restore(std::move(session));
    (awaited ? recovered_.awaited : lives ? recovered_.sessions : recovered_.gone).push_back(SessionId{entry.id});
  }
}

void Broker::Recovery::HazardPages() {
  for (const Records::Entry& entry : Of(record::kHazardPage)) {
    const auto its = entry.Read<record::Page>();
    const std::string name = StoredName(kStoredHazardPage, entry.id);
    Namespace* const ns = state_.namespaces.Find({its.ns_uid.value_or(0), its.ns});
    Session* const session = state_.sessions.Find(SessionId{its.session});
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
  for (const Records::Entry& entry : Of(record::kLease)) {
    const auto its = entry.Read<record::Lease>();
    Session* const session = state_.sessions.Find(SessionId{its.session});
    Share* const share = FindShare(its.share);
    const ChannelEndId receiver{its.receiver};
    if (share == nullptr || (session == nullptr && receiver == ChannelEndId{})) {
      journal().Erase(entry.place);
      continue;
    }
    if (receiver != ChannelEndId{}) channels_.NoteReceived(state_, session, LeaseId{entry.id}, receiver, *share);
    if (session != nullptr) {
      state_.leases.Restore(*session, *share, LeaseId{entry.id}, {entry.place, its.request, receiver});
    } else {
      received_.push_back(entry.place);
    }
  }
}

// They wait for their session's client as long as the session does.
void Broker::Recovery::Tickets() {
  const Clock::time_point awaited_until = Clock::now() + state_.config.orphan_grace.get();
  for (const Records::Entry& entry : Of(record::kTicket)) {
    const auto its = entry.Read<record::Ticket>();
    Session* const session = state_.sessions.Find(SessionId{its.session});
    if (session == nullptr) {
      journal().Erase(entry.place);
      continue;
    }
    session->tickets.Add({TokenOf(its.token), ArenaId{its.arena}, Access(its.access),
                          std::max(TimeOf(its.deadline), awaited_until), entry.place});
  }
}

void Broker::Recovery::Queues() {
  for (const Records::Entry& entry : Of(record::kQueue)) {
    const auto its = entry.Read<record::Page>();
    const std::string name = StoredName(kStoredQueue, entry.id);
    Session* const session = state_.sessions.Find(SessionId{its.session});
    UniqueFd requests = files_.Take(name);
    UniqueFd completions = files_.Take(name);
    // Holders return the entries of one name in any order. Only the completions are the daemon's to write.
    const bool swapped = (::fcntl(requests.get(), F_GETFL) & O_ACCMODE) != O_RDONLY;
    if (swapped) std::swap(requests, completions);
    auto adopted = SessionQueue::Adopt(its.session, std::move(requests), std::move(completions));
    if (session == nullptr || session->queue != nullptr || !adopted.ok()) {
      journal().Erase(entry.place);
      continue;
    }
    OpenQueue open{session->id, its.ns_uid, std::string(its.ns), *std::move(adopted)};
    open.queue->stored = journal().Has(name);
    session->queue_record = entry.place;
    state_.sessions.AddQueue(*session, std::move(open));
  }
}

void Broker::Recovery::ReturnedRanges() {
  for (const Records::Entry& entry : Of(record::kReturned)) {
    const auto its = entry.Read<record::Returned>();
    Session* const session = state_.sessions.Find(SessionId{its.session});
    const Arena* const arena = session == nullptr ? nullptr : state_.arenas.FindWritable(*session, ArenaId{its.arena});
    // The previous daemon may have been killed between the records of the range and of its share.
    if (arena == nullptr || !arena->CheckRange(its.offset, its.size).ok()) {
      journal().Erase(entry.place);
      continue;
    }
    session->returned.push_back({ArenaId{its.arena}, its.offset, its.size, entry.place});
  }
}

}  // namespace arraybridge::daemon
