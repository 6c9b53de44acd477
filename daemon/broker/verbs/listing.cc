// SPDX-License-Identifier: Apache-2.0
// Paged lists. A page token names the row after which the list continues, so rows may come and go between two pages. A
// page visits at most kVisitsMax rows, matching or not: then it ends, possibly empty, with a token. The page adds up
// the bytes of its rows and ends before it exceeds its limit.
#include <algorithm>
#include <bit>
#include <charconv>
#include <iterator>
#include <set>
#include <utility>

#include "daemon/broker/objects/direct_channel_record.h"
#include "daemon/broker/verbs/state.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kVisitsMax = 1024;

NamespaceRow RowOf(const Namespace& ns, const NamespacePolicy& policy) {
  return {.ns = ns.name(),
          .uid = ns.uid(),
          .quota_bytes = ns.quota().bytes(),
          .charged_bytes = ns.quota().used(),
          .shares = ns.named(),
          .share_bytes = ns.share_bytes(),
          .named_bytes = ns.uses.named_bytes(),
          .queued_bytes = ns.uses.queued_bytes(),
          .unowned_bytes = ns.unowned_bytes,
          .share_lifetime = policy.share_lifetime,
          .orphan_grace = policy.orphan_grace,
          .withdraws_on_exit = policy.withdraw_on_exit};
}

Status BadToken() { return InvalidArgument("the page token is not one of this broker's").Because("BAD_PAGE_TOKEN"); }

Result<uint64_t> ReadNumber(std::string_view text) {
  uint64_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc{} || end != last) return BadToken();
  return number;
}

std::chrono::milliseconds Age(Clock::time_point born, Clock::time_point now) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(now - born);
}

// The namespace in a page token, "uid/name". nullopt: the list starts at the first.
Result<NamespaceKey> KeyIn(std::string_view text) {
  if (text.empty()) return NamespaceKey{};
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return BadToken();
  const auto uid = ReadNumber(text.substr(0, slash));
  if (!uid.ok() || *uid > kSharedByUsers) return BadToken();
  return NamespaceKey{static_cast<uint32_t>(*uid), text.substr(slash + 1)};
}

// The namespace and name of a channel, "10/namespacename". nullopt: the list starts at the first.
Result<std::pair<NamespaceKey, std::string_view>> PlaceIn(const ListPosition& position) {
  if (position.number > kSharedByUsers) return BadToken();
  NamespaceKey key{static_cast<uint32_t>(position.number), {}};
  const std::string_view text = position.text;
  if (text.empty()) return std::pair{key, text};
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return BadToken();
  const auto length = ReadNumber(text.substr(0, slash));
  if (!length.ok() || *length > text.size() - slash - 1) return BadToken();
  key.name = text.substr(slash + 1, *length);
  return std::pair{key, text.substr(slash + 1 + *length)};
}

// The text of the token that continues a list of channels after `at`.
template <class Channels>
std::string TokenBefore(const Channels& channels, typename Channels::const_iterator at, const NamespaceKey& key) {
  const std::string_view name = at == channels.begin() ? std::string_view() : std::string_view(std::prev(at)->first);
  return Concat(key.uid, ":", key.name.size(), "/", key.name, name);
}

ChannelRow RowOf(const Channel& channel) {
  ChannelRow row{.ns = channel.ns()->name(),
                 .name = channel.name(),
                 .uid = channel.ns()->uid(),
                 .capacity = channel.capacity(),
                 .queued = channel.queued(),
                 .queued_bytes = channel.queued_bytes(),
                 .senders = channel.senders(),
                 .receivers = channel.receivers(),
                 .direct = channel.direct != nullptr && channel.direct->open,
                 .stream = channel.stream(),
                 .terms = channel.terms(),
                 .totals = channel.totals(),
                 .ends = {}};
  row.terms.mode = channel.mode();
  if (channel.most_waiting() > 0) row.oldest = Age(channel.oldest().born, Clock::now());
  row.full = !channel.CheckSend().ok();
  if (!row.direct) return row;
  const DirectChannel::Counted counted = channel.direct->pages->counted();
  row.totals.sent += counted.sent;
  row.totals.received += counted.taken;
  row.queued += counted.sent - counted.taken;
  row.full = row.full || row.queued >= row.capacity;
  return row;
}

// Upper bound of a number's bytes in an answer: one for its field, one for each seven of its bits.
uint64_t BytesOf(uint64_t number) { return 2 + static_cast<uint64_t>(std::bit_width(number)) / 7; }
template <class... Numbers>
uint64_t BytesOf(uint64_t first, Numbers... more) {
  return BytesOf(first) + BytesOf(static_cast<uint64_t>(more)...);
}
uint64_t BytesOf(std::chrono::milliseconds time) { return BytesOf(static_cast<uint64_t>(time.count())); }

constexpr uint64_t kRowBytes = 40;  // flags, kinds, the lengths of strings and of nested messages

uint64_t BytesOf(const ShareRow& row) {
  const Handle& handle = row.handle;
  const ShareFacts& facts = *row.facts;
  return kRowBytes + facts.description.size() + facts.ns.size() + facts.name.size() + handle.device.uuid.size() +
         BytesOf(Number(facts.id), facts.generation, handle.arena, handle.generation, handle.offset, handle.size,
                 handle.arena_size, handle.device.id) +
         BytesOf(Number(row.maker), row.maker_process_id, row.leases, row.maker_uid.value_or(0)) + BytesOf(row.age) +
         BytesOf(row.expires_in.value_or(std::chrono::milliseconds(0)));
}

uint64_t BytesOf(const SessionRow& row) {
  return kRowBytes + row.client.size() + 2 * row.kinds.size() + born::kWireBytesMax + BytesOf(row.age) +
         BytesOf(Number(row.session), row.uid, row.process_id, row.leases, row.arenas, row.arena_bytes);
}

uint64_t BytesOf(const LeaseRow& row) {
  const ShareFacts& facts = *row.facts;
  return kRowBytes + facts.ns.size() + facts.name.size() + row.device.uuid.size() +
         BytesOf(Number(row.lease), Number(row.session), Number(facts.id), facts.generation, row.size, row.uid,
                 row.process_id, row.device.id);
}

uint64_t BytesOf(const NamespaceRow& row) {
  return kRowBytes + row.ns.size() + BytesOf(row.share_lifetime) + BytesOf(row.orphan_grace) +
         BytesOf(row.uid, row.quota_bytes, row.charged_bytes, row.shares, row.share_bytes) +
         BytesOf(row.named_bytes, row.queued_bytes, row.unowned_bytes);
}

uint64_t BytesOfAll(const std::vector<ChannelRow::End>& ends) {
  uint64_t bytes = 0;
  for (const ChannelRow::End& end : ends) {
    bytes += kRowBytes + (end.client == nullptr ? 0 : end.client->size()) +
             BytesOf(Number(end.session), end.process_id, end.shares, end.waiting, end.dropped) + BytesOf(end.closed);
  }
  return bytes;
}

uint64_t BytesOf(const ChannelRow& row) {
  return kRowBytes + row.ns.size() + row.name.size() +
         BytesOf(row.uid, row.capacity, row.queued, row.queued_bytes, row.senders, row.receivers) +
         BytesOf(row.stream, UINT64_MAX, row.terms.replayed(), row.totals.sent, row.totals.received,
                 row.totals.dropped) +
         BytesOfAll(row.ends);
}

// Collects the rows of a page while they fit.
template <class Page>
class PageRoom {
 public:
  PageRoom(const ListFilter& filter, Page& page) : left_(filter.bytes_max), rows_max_(filter.page_size), page_(page) {}
  // False: the page is full. The first row always fits.
  template <class Row>
  bool Add(Row row) {
    const uint64_t bytes = BytesOf(row);
    if (page_.rows.size() >= rows_max_ || (bytes > left_ && !page_.rows.empty())) return false;
    left_ -= std::min(bytes, left_);
    page_.rows.push_back(std::move(row));
    return true;
  }

 private:
  uint64_t left_;
  const size_t rows_max_;
  Page& page_;
};

std::string TokenAt(uint64_t number, const NamespaceKey& key) { return Concat(number, ":", key.uid, "/", key.name); }

bool Matches(const ListFilter& filter, const Share& share) {
  if (!filter.ns.empty() && share.facts->ns != filter.ns) return false;
  return share.facts->name.starts_with(filter.name_prefix);
}

// The bytes that wait in the channel and have no name. Ends at `visits`.
uint64_t UnnamedBytes(const Channel& channel, uint64_t* visits) {
  std::set<const Share*> roots;
  uint64_t bytes = 0;
  for (const Share* const each : channel.queue()) {
    if (++*visits > kVisitsMax) break;
    const Share& root = each->root == nullptr ? *each : *each->root;
    if (root.names == 0 && roots.insert(&root).second) bytes += root.own_bytes;
  }
  return bytes;
}

}  // namespace

Result<ListPosition> Broker::State::PositionOf(SessionId session, const ListFilter& filter) const {
  ListPosition position;
  if (!filter.page_token.empty()) {
    const size_t colon = filter.page_token.find(':');
    if (colon == std::string::npos) return BadToken();
    AB_ASSIGN_OR_RETURN(const auto number, ReadNumber(std::string_view(filter.page_token).substr(0, colon)));
    position.number = number;
    position.text = filter.page_token.substr(colon + 1);
  }
  if (filter.everybody) return position;
  position.asker = sessions.Find(session);
  if (position.asker == nullptr) return NoSession();
  return position;
}

bool ListPosition::Sees(const Session& session, const ListFilter& filter) const {
  if (filter.session != SessionId{} && filter.session != session.id) return false;
  return asker == nullptr || asker->peer.uid == session.peer.uid;
}

ShareRow Broker::State::RowOf(const Share& share, Clock::time_point now, const Session* asker) const {
  const bool maker_lives = sessions.Find(share.maker) != nullptr;
  const bool sees_maker = asker == nullptr || asker->peer.uid == share.maker_uid;
  return {
      share.facts,
      share.arena->Describe(share.offset, share.size),
      share.arena->immutability.value_or(Immutability::kByContract),
      maker_lives && sees_maker ? share.maker : SessionId{},
      sees_maker ? share.maker_process_id : 0,
      share.leases,
      Age(share.born, now),
      share.fence.done(),
      share.expires ? std::optional(std::max(Age(now, *share.expires), std::chrono::milliseconds(0))) : std::nullopt,
      sees_maker ? std::optional(share.maker_uid) : std::nullopt,
      maker_lives && rights.PolicyOf(share.facts->ns).withdraw_on_exit,
      share.root == nullptr ? ShareId{} : share.root->facts->id};
}

Result<SharePage> Broker::ListShares(SessionId session, const ListFilter& filter) const {
  const State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(const auto after, state.PositionOf(session, filter));
  AB_ASSIGN_OR_RETURN(const auto first, KeyIn(after.text));
  const auto now = Clock::now();
  SharePage page;
  PageRoom room(filter, page);
  uint64_t visits = 0;
  ShareId last{};
  uint32_t last_in = 0;
  for (auto ns = state.namespaces.all().lower_bound(first); ns != state.namespaces.all().end(); ++ns) {
    if (after.asker != nullptr && !state.rights.MayList(after.asker->peer, ns->first)) continue;
    const auto& shares = ns->second->shares();
    auto at = ns->first == first ? shares.upper_bound(ShareId{after.number}) : shares.begin();
    for (; at != shares.end(); ++at) {
      const Share& share = *at->second;
      if (++visits > kVisitsMax) {
        page.next = TokenAt(at == shares.begin() ? 0 : Number(std::prev(at)->first), ns->first);
        return page;
      }
      const bool sees_maker = after.asker == nullptr || after.asker->peer.uid == share.maker_uid;
      const bool wanted = filter.session == SessionId{} || (sees_maker && filter.session == share.maker);
      if (share.withdrawn || !wanted || !Matches(filter, share)) continue;
      if (!room.Add(state.RowOf(share, now, after.asker))) {
        page.next = TokenAt(Number(last), {last_in, page.rows.back().facts->ns});
        return page;
      }
      last = share.facts->id;
      last_in = ns->first.uid;
    }
  }
  return page;
}

Result<SessionPage> Broker::ListSessions(SessionId session, const ListFilter& filter) const {
  const State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(const auto after, state.PositionOf(session, filter));
  const auto now = Clock::now();
  SessionPage page;
  PageRoom room(filter, page);
  uint64_t visits = 0;
  for (auto at = state.sessions.all().upper_bound(SessionId{after.number}); at != state.sessions.all().end(); ++at) {
    const Session& one = *at->second;
    if (!after.Sees(one, filter)) continue;
    uint64_t arena_bytes = 0;
    const bool looks = page.rows.size() < filter.page_size && visits <= kVisitsMax;
    if (looks) {
      for (const auto& [id, arena] : one.arenas) arena_bytes += arena->footprint();
    }
    const bool fits =
        looks && room.Add(SessionRow{one.id, one.peer.client, one.peer.uid, one.peer.process_id, one.peer.door,
                                     Age(one.born, now), one.leases.size(), one.arenas.size(), arena_bytes,
                                     one.peer.kinds, one.awaited, born::Of(one.queue)});
    if (!fits) {
      page.next = Concat(Number(page.rows.back().session), ":");
      return page;
    }
    visits += 1 + one.arenas.size();
  }
  return page;
}

// Ordered by session, then by lease. The token is "session:lease".
Result<LeasePage> Broker::ListLeases(SessionId session, const ListFilter& filter) const {
  const State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(const auto after, state.PositionOf(session, filter));
  const auto last_lease = after.text.empty() ? Result<uint64_t>(uint64_t{0}) : ReadNumber(after.text);
  if (!last_lease.ok()) return last_lease.status();
  LeasePage page;
  PageRoom room(filter, page);
  uint64_t visits = 0;
  for (auto at = state.sessions.all().lower_bound(SessionId{after.number}); at != state.sessions.all().end(); ++at) {
    const Session& one = *at->second;
    if (!after.Sees(one, filter)) continue;
    const bool goes_on = one.id == SessionId{after.number};
    for (auto lease = one.leases.upper_bound(LeaseId{goes_on ? *last_lease : 0}); lease != one.leases.end(); ++lease) {
      if (++visits > kVisitsMax) {
        const uint64_t last = lease == one.leases.begin() ? 0 : Number(std::prev(lease)->first);
        page.next = Concat(Number(one.id), ":", last);
        return page;
      }
      if (!Matches(filter, *lease->second)) continue;
      const Namespace& ns = *lease->second->ns;  // a token may open it to one session of a user only
      if (after.asker != nullptr && !state.rights.MayList(after.asker->peer, {ns.uid(), ns.name()})) continue;
      if (!room.Add(LeaseRow{lease->first, one.id, lease->second->facts, lease->second->size, one.peer.uid,
                             one.peer.process_id, lease->second->arena->device()})) {
        page.next = Concat(Number(page.rows.back().session), ":", Number(page.rows.back().lease));
        return page;
      }
    }
  }
  return page;
}

// Visits at most kVisitsMax shares, and as many in channels: the largest may be among the others.
Result<NamespaceUse> Broker::UseOf(SessionId session, std::string_view ns) const {
  const State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(const Session* const found, state.sessions.Get(session));
  AB_ASSIGN_OR_RETURN(const auto key, state.rights.KeyOf(found->peer, ns, Right::kRead));
  const auto its = state.namespaces.all().find(key);
  if (its == state.namespaces.all().end()) return NotFound("there is no namespace '", ns, "'");
  const Namespace& space = *its->second;
  NamespaceUse use{RowOf(space, state.rights.PolicyOf(space.name())), {}};
  uint64_t visits = 0;
  for (const auto& [id, share] : space.shares()) {
    if (++visits > kVisitsMax) break;
    if (!share->withdrawn) use.Add(share->facts->name, share->own_bytes, false);
  }
  visits = 0;
  for (const auto& [name, channel] : space.channels) {
    if (++visits > kVisitsMax) break;
    use.Add(name, UnnamedBytes(*channel, &visits), true);
  }
  return use;
}

std::vector<NamespaceRow> Broker::NamespaceRows() const {
  const State& state = *state_;
  const MutexLock lock(state.mutex);
  std::vector<NamespaceRow> rows;
  for (const auto& [key, ns] : state.namespaces.all()) {
    if (!ns->unused()) rows.push_back(RowOf(*ns, state.rights.PolicyOf(ns->name())));
  }
  return rows;
}

// Ordered by owner, then by name.
Result<NamespacePage> Broker::ListNamespaces(SessionId session, const ListFilter& filter) const {
  const State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(const auto after, state.PositionOf(session, filter));
  AB_ASSIGN_OR_RETURN(const auto first, KeyIn(after.text));
  NamespacePage page;
  PageRoom room(filter, page);
  for (auto at = state.namespaces.all().upper_bound(first); at != state.namespaces.all().end(); ++at) {
    const Namespace& ns = *at->second;
    if (ns.unused() || (!filter.ns.empty() && ns.name() != filter.ns)) continue;
    if (after.asker != nullptr && !state.rights.MayList(after.asker->peer, at->first)) continue;
    if (!room.Add(RowOf(ns, state.rights.PolicyOf(ns.name())))) {
      page.next = TokenAt(0, {page.rows.back().uid, page.rows.back().ns});
      return page;
    }
    if (after.asker == nullptr) continue;
    page.rows.back().read_only = state.rights.PlaceOf(after.asker->peer, ns.name()).right < Right::kWrite;
  }
  return page;
}

std::vector<ChannelRow::End> Broker::State::EndsOf(const Channel& channel, const Session* asker) const {
  std::vector<ChannelRow::End> ends;
  ends.reserve(channel.members().size());
  for (const Channel::Member& member : channel.members()) {
    const Session* const its = sessions.Find(member.session);
    if (its == nullptr) continue;  // it is being closed
    ChannelRow::End& end = ends.emplace_back();
    end.role = member.role;
    end.shares = its->ends.at(member.end).shares;
    end.waiting = member.role == ChannelRole::kReceiver ? channel.waiting(member) : 0;
    end.dropped = member.dropped;
    if (asker != nullptr && asker->peer.uid != its->peer.uid) continue;
    end.session = member.session;
    end.process_id = its->peer.process_id;
    end.client = its->client;
  }
  if (!channel.has_unread_end()) return ends;
  const auto add = [&](ChannelRole role, const Notices& notices) {
    const Notice* const last = notices.newest();
    if (last == nullptr) return;
    ChannelRow::End& end = ends.emplace_back();
    end.role = role;
    end.shares = last->shares;
    end.closed = std::max(Age(last->at, Clock::now()), std::chrono::milliseconds(1));
    // A notice has no uid.
    if (asker != nullptr && asker->peer.uid != channel.ns()->uid()) return;
    end.process_id = last->process_id;
    end.client = last->client;
  };
  add(ChannelRole::kSender, channel.past().to_receivers);
  add(ChannelRole::kReceiver, channel.past().to_senders);
  return ends;
}

Result<std::pair<ChannelRow, ChannelRole>> Broker::ChannelRowOf(SessionId session, ChannelEndId end) const {
  const State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(const Session* const found, state.sessions.Get(session));
  const auto its = found->ends.find(end);
  if (its == found->ends.end()) return NotFound("the session has no such end of a channel");
  const Channel& channel = *its->second.channel;
  ChannelRow row = RowOf(channel);
  row.ends = state.EndsOf(channel, nullptr);
  return std::pair{std::move(row), its->second.role};
}

// Ordered by the owner of the namespace, the namespace, then by name. The token is "uid:" and PlaceIn.
Result<ChannelPage> Broker::ListChannels(SessionId session, const ListFilter& filter) const {
  const State& state = *state_;
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(const auto after, state.PositionOf(session, filter));
  AB_ASSIGN_OR_RETURN(const auto place, PlaceIn(after));
  const auto& [first, last_name] = place;
  ChannelPage page;
  PageRoom room(filter, page);
  uint64_t visits = 0;
  for (auto ns = state.namespaces.all().lower_bound(first); ns != state.namespaces.all().end(); ++ns) {
    if (after.asker != nullptr && !state.rights.MayList(after.asker->peer, ns->first)) continue;
    if (!filter.ns.empty() && ns->second->name() != filter.ns) continue;
    const auto& channels = ns->second->channels;
    auto at = ns->first == first ? channels.upper_bound(last_name) : channels.begin();
    for (; at != channels.end(); ++at) {
      const bool wanted = at->first.starts_with(filter.name_prefix);
      bool full = ++visits > kVisitsMax;
      if (wanted && !full) {
        ChannelRow row = RowOf(*at->second);
        if (filter.ends) row.ends = state.EndsOf(*at->second, after.asker);
        full = !room.Add(std::move(row));
      }
      if (full) {
        page.next = TokenBefore(channels, at, ns->first);
        return page;
      }
    }
  }
  return page;
}

}  // namespace arraybridge::daemon
