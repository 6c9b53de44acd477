// What ends many things at once: a session with all that it has, the shares whose time has come, a queue that nobody
// receives any more. It is done in slices, with the lock free between them, so that nobody waits for what others had.
#include <algorithm>
#include <array>
#include <utility>

#include "daemon/broker/state.h"

namespace arraybridge {
namespace {

// False: none is left.
bool Take(uint64_t* steps) {
  if (*steps == 0) return false;
  --*steps;
  return true;
}

}  // namespace

// In this order: an event dies with its process, and nobody is left who could say that it happened. The bytes are given
// to nobody: the arena gets no writer any more, and dies only when the process, which may still write it, is dead.
// Before its own leases and holds end: those may be all that is left of such a share, and nothing finds this session
// any more.
bool Broker::State::Abandon(Session& session, uint64_t* steps) {
  while (!session.fenced.empty()) {
    if (!Take(steps)) return false;
    Share& share = *session.fenced.extract(session.fenced.begin()).mapped();
    share.fenced_by = nullptr;
    if (!share.fence.done()) Lose(share);
  }
  if (!session.holds_in.empty()) DropHolds(session);
  while (!session.leases.empty()) {
    if (!Take(steps)) return false;
    EndLease(session, session.leases.begin()->first);
  }
  while (!session.uses.empty()) {
    if (!Take(steps)) return false;
    const auto use = session.uses.begin();
    use->first->readers.erase(&session);
    session.uses.erase(use);
  }
  return AbandonArenas(session, steps);
}

// An arena may begin to die while this looks at it, and is the session's no more then.
bool Broker::State::AbandonArenas(Session& session, uint64_t* steps) {
  while (!session.arenas.empty()) {
    if (!Take(steps)) return false;
    const auto first = session.arenas.begin();
    Arena& arena = *first->second;
    if (session.clearing.arena != first->first) {
      session.clearing = {first->first, 0, 0};
      if (arena.writer != nullptr) GiveBack(arena);
      continue;
    }
    const auto next = arena.shares().lower_bound(session.clearing.offset);
    if (next == arena.shares().end()) {
      arena.maker = nullptr;
      session.arenas.erase(first);
      continue;
    }
    session.clearing.offset = next->first + 1;
    AbandonShare(session, *next->second);
  }
  return true;
}

void Broker::State::AbandonShare(Session& session, Share& share) {
  if (share.withdrawn) return;
  const NamespacePolicy& policy = PolicyOf(share.ns->name());
  if (policy.withdraw_on_exit) return Withdraw(share, &session, "publisher_exit");
  if (!share.facts->unnamed) return;
  share.orphan_until = session.ended + policy.orphan_grace;
  orphans.emplace(*share.orphan_until, &share);
  sweep_wanted.store(true);
}

// A few steps each, so that a small one does not wait for a large one.
void Broker::State::ClearSessions(uint64_t* steps) {
  constexpr uint64_t kTurn = kStepsAtOnce / 4;
  because = FreeCause::kSessionEnd;
  while (!leaving.empty() && *steps > 0) {
    const uint64_t given = std::min(kTurn, *steps);
    uint64_t left = given;
    std::unique_ptr<Session> session = std::move(leaving.front());
    leaving.pop_front();
    const bool done = Abandon(*session, &left);
    *steps -= std::max<uint64_t>(given - left, 1);
    if (done) {
      cleared.push_back(std::move(session));
    } else {
      leaving.push_back(std::move(session));
    }
  }
  because = FreeCause::kRelease;
}

void Broker::State::ClearQueues(uint64_t* steps) {
  while (!unqueued.empty() && Take(steps)) {
    std::deque<Share*>& queue = unqueued.front();
    Share& share = *queue.front();
    queue.pop_front();
    if (queue.empty()) unqueued.pop_front();
    --share.queued;
    Settle(share);
  }
}

// Whether one is read is known at once where a look into the pages costs little, and else from the next look.
void Broker::State::WithdrawOrphans(Clock::time_point now, uint64_t* steps) {
  while (!orphans.empty() && orphans.begin()->first <= now && Take(steps)) {
    Share& share = *orphans.extract(orphans.begin()).value().second;
    if (share.withdrawn || share.leases > 0) continue;
    if (share.ns->holding.IsKnownUnheld(share)) {
      Withdraw(share, nullptr, "orphaned");
    } else {
      Await(share);
    }
  }
}

void Broker::State::WithdrawExpired(Clock::time_point now, uint64_t* steps) {
  while (!expiring.empty() && expiring.begin()->first <= now && Take(steps)) {
    Withdraw(*expiring.begin()->second, nullptr, "expired");
  }
}

void Broker::State::DropLingering(Clock::time_point now, uint64_t* steps) {
  while (!lingering.empty() && lingering.begin()->first <= now && Take(steps)) DropChannel(*lingering.begin()->second);
}

// Each kind has steps of its own: none waits for another.
bool Broker::State::ClearSome(Clock::time_point now) {
  std::array<uint64_t, 5> left{};
  left.fill(kStepsAtOnce);
  ClearSessions(&left[0]);
  ClearQueues(&left[1]);
  WithdrawOrphans(now, &left[2]);
  WithdrawExpired(now, &left[3]);
  DropLingering(now, &left[4]);
  return std::ranges::find(left, uint64_t{0}) != left.end();
}

std::optional<Clock::time_point> Broker::State::NextDue() const {
  std::optional<Clock::time_point> next;
  if (!expiring.empty()) next = expiring.begin()->first;
  if (!orphans.empty()) next = next ? std::min(*next, orphans.begin()->first) : orphans.begin()->first;
  return next;
}

Broker::Swept Broker::SweepOn(Clock::time_point now) {
  State& state = *state_;
  std::vector<std::unique_ptr<Session>> cleared;  // die after the lock
  std::vector<std::shared_ptr<const void>> dropped;
  Swept swept;
  const MutexLock lock(state.mutex);
  swept.unfinished = state.ClearSome(now);
  swept.next = state.NextDue();
  cleared.swap(state.cleared);
  dropped.swap(state.dropped);
  return swept;
}

}  // namespace arraybridge
