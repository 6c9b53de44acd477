// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/objects/channel.h"

#include <algorithm>
#include <utility>

#include "daemon/broker/objects/direct_channel_record.h"
#include "daemon/broker/objects/runs/run.h"
#include "daemon/broker/objects/share.h"
#include "daemon/broker/objects/share_uses.h"

namespace arraybridge::daemon {

namespace {

// Values of terms in messages.
std::string_view ValueOf(ChannelMode mode) {
  return mode == ChannelMode::kLatest ? "latest" : mode == ChannelMode::kBroadcast ? "broadcast" : "queue";
}
std::string_view ValueOf(const std::optional<bool>& drops) { return *drops ? "drop_oldest" : "block"; }
uint64_t ValueOf(const std::optional<uint64_t>& shares) { return *shares; }
uint64_t ValueOf(uint64_t shares) { return shares; }

}  // namespace

Status Channel::Agree(const ChannelTerms& stated, const std::string& by) {
  ChannelTerms agreed = past_.terms;
  agreed.mode = mode();
  std::array<std::string, 4> stated_by = stated_by_;
  // FAILED_PRECONDITION if both are stated, and differ.
  const auto agree = [&](Term term, auto wanted, auto& known, const auto& unset) {
    if (wanted == unset || wanted == known) return Ok();
    if (known == unset) {
      known = wanted;
      stated_by[term] = by;
      return Ok();
    }
    constexpr std::array<std::string_view, 4> kNames{"mode", "on_slow", "replay", "capacity"};
    const std::string& who = stated_by_[term];
    std::string why = who.empty() ? "an end before it stated it" : Concat(who, " stated it");
    if (term == kMode && past_.terms.mode == ChannelMode::kUnset) {
      why = "a channel whose ends state no mode is a queue from its first array on";
    }
    return FailedPrecondition("channel '", name_, "' has ", kNames[term], " ", ValueOf(known), ", not ",
                              ValueOf(wanted), ": ", why)
        .Because(term == kCapacity ? "CHANNEL_CAPACITY" : "CHANNEL_MODE")
        .With(term == kCapacity ? "capacity" : "mode",
              term == kCapacity ? std::to_string(agreed.capacity) : std::string(ValueOf(agreed.mode)));
  };
  AB_RETURN_IF_ERROR(agree(kMode, stated.mode, agreed.mode, ChannelMode::kUnset));
  AB_RETURN_IF_ERROR(agree(kOnSlow, stated.drop_oldest, agreed.drop_oldest, std::nullopt));
  AB_RETURN_IF_ERROR(agree(kReplay, stated.replay, agreed.replay, std::nullopt));
  AB_RETURN_IF_ERROR(agree(kCapacity, stated.capacity, agreed.capacity, uint64_t{0}));
  const uint64_t capacity = agreed.capacity == 0 ? kChannelCapacityDefault : agreed.capacity;
  if (agreed.replayed() > capacity) {
    return FailedPrecondition("channel '", name_, "' cannot replay ", agreed.replayed(), " shares: its capacity is ",
                              capacity)
        .Because("CHANNEL_CAPACITY")
        .With("capacity", std::to_string(capacity));
  }
  if (stated.mode == ChannelMode::kUnset) agreed.mode = past_.terms.mode;
  past_.terms = agreed;
  stated_by_ = std::move(stated_by);
  return Ok();
}

const Channel::Member* Channel::FindMember(ChannelEndId end) const {
  const auto found = std::ranges::find(members_, end, &Member::end);
  return found == members_.end() ? nullptr : &*found;
}

void Channel::Restore(Past past, uint64_t dropped) {
  past_ = std::move(past);
  Drop(dropped);
}

void Channel::RestoreEnd(Member member) {
  member.passed = std::max(member.passed, past_.taken);
  members_.push_back(member);
  ++(member.role == ChannelRole::kSender ? senders_ : receivers_);
}

void Channel::RestoreSent(uint64_t sequence) {
  past_.sent = std::max(past_.sent, sequence);
  past_.begun = true;
}

void Channel::RestoreReceived(ChannelEndId receiver, uint64_t sequence) {
  const auto member = std::ranges::find(members_, receiver, &Member::end);
  if (member != members_.end()) member->passed = std::max(member->passed, sequence);
}

// The waiting shares of a broadcast have all sequences up to the last one; where one is lost, those before it are, too.
std::vector<Share*> Channel::RestoreQueue(const std::vector<Share*>& waiting) {
  std::vector<Share*> others;
  for (auto next = waiting.rbegin(); next != waiting.rend(); ++next) {
    Share& share = **next;
    const bool fits = !broadcasts() || (others.empty() && share.facts->sent->sequence + queue_.size() == past_.sent);
    if (!fits) {
      others.push_back(&share);
      continue;
    }
    PushFront(share);
  }
  for (Member& each : members_) {
    if (!broadcasts() || each.role != ChannelRole::kReceiver) continue;
    const uint64_t most = past_.terms.drops() ? std::min<uint64_t>(capacity(), queue_.size()) : queue_.size();
    const uint64_t passed = std::max(each.passed, past_.sent - std::min(past_.sent, most));
    each.dropped += passed - each.passed;
    each.passed = passed;
  }
  return others;
}

void Channel::RestoreTotals(uint64_t received_by_open) {
  const uint64_t gone = past_.sent - std::min<uint64_t>(past_.sent, queue_.size());
  const uint64_t received = broadcasts() ? past_.received + received_by_open : gone - std::min(gone, totals_.dropped);
  totals_.sent = past_.sent;
  totals_.received = received;
  of_all_.sent += past_.sent;
  of_all_.received += received;
}

bool Channel::Enter(const Run& run) {
  const bool begins = Begins(run, past_.run, members_);
  if (begins) past_.run = run;
  return begins;
}

uint64_t Channel::Open(Member member) {
  member.passed = past_.sent - std::min<uint64_t>(past_.terms.replayed(), queue_.size());
  if (senders_ == 0 && waiting(member) == 0) member.late = past_.to_receivers.last();
  members_.push_back(member);
  if (member.role == ChannelRole::kSender) {
    if (senders_++ == 0) {
      ++past_.stream;
      past_.drained = false;
    }
    return past_.to_senders.last();
  }
  ++receivers_;
  past_.had_receivers = true;
  const uint64_t last = past_.to_receivers.last();
  // Replayed shares bring no notices of their time.
  if (broadcasts() && senders_ > 0) return last;
  // The first notice whose shares wait here is this receiver's too. If none waits and no stream runs, a receiver that
  // came late still learns that the stream ended in order. It is not told of deaths before its time.
  const uint64_t seen = last - (ended_in_order() && !past_.drained ? 1 : 0);
  if (broadcasts()) return seen;
  for (const Notice* next = past_.to_receivers.After(0); next != nullptr;
       next = past_.to_receivers.After(next->number)) {
    if (next->after > Passed(member)) return std::min(seen, next->number - 1);
  }
  return seen;
}

bool Channel::ended_in_order() const {
  const Notice* const newest = past_.to_receivers.newest();
  return senders_ == 0 && newest != nullptr && newest->how == EndedHow::kClosed && !newest->missing;
}

// A receiver that died may have been told too late to act on it: it had not yet closed the next channel of a pipeline.
bool Channel::has_unread_end() const {
  if (!ended_in_order() || receivers_ > 0 || past_.drained) return false;
  if (!past_.had_receivers) return true;
  const Notice* const last = past_.to_senders.newest();
  return last->how == EndedHow::kDied ||
         (last->how == EndedHow::kAbandoned && past_.notified_receiver < past_.to_receivers.last());
}

void Channel::Close(ChannelEndId id, Notice end, uint64_t received) {
  const auto found = std::ranges::find(members_, id, &Member::end);
  AB_CHECK(found != members_.end());
  const ChannelRole role = found->role;
  end.run = found->run == nullptr ? past_.run : found->run;
  members_.erase(found);
  past_.closed = id;
  past_.received += received;
  end.after = past_.sent;
  end.stream = past_.stream;
  if (role == ChannelRole::kReceiver) {
    if (--receivers_ == 0) past_.to_senders.Add(std::move(end));
    return;
  }
  end.missing = std::exchange(past_.missing, false);
  // Of senders that close in order, the last one ends the stream.
  if (--senders_ == 0 || end.how != EndedHow::kClosed || end.missing) past_.to_receivers.Add(std::move(end));
}

Status Channel::NoticeTo(ChannelEndId end, uint64_t seen) {
  const Member* const member = FindMember(end);
  if (member == nullptr) return Ok();
  if (member->role == ChannelRole::kSender) {
    const Notice* const next =
        broadcasts() ? nullptr : past_.to_senders.After(seen, member->run);  // a broadcast goes on without receivers
    return next == nullptr ? Ok() : ToSender(*next, name_);
  }
  const Notice* const next = past_.to_receivers.After(seen, member->run);
  if (next == nullptr || next->after > Passed(*member)) return Ok();
  past_.notified_receiver = std::max(past_.notified_receiver, next->number);
  return ToReceiver(*next, name_, next->number <= member->late);
}

uint64_t Channel::most_waiting() const {
  if (!broadcasts()) return queue_.size();
  uint64_t most = 0;
  for (const Member& each : members_) most = std::max(most, each.role == ChannelRole::kReceiver ? waiting(each) : 0);
  return most;
}

Status Channel::CheckSend(bool from_direct) const {
  uint64_t most = broadcasts() && past_.terms.drops() ? 0 : most_waiting();
  // The queue and the direct channel together hold at most twice the capacity, even if a session miscounts.
  if (!broadcasts() && from_direct) most /= 2;
  if (most < capacity()) return Ok();
  return ResourceExhausted("channel '", name_, "' is full: ", most, " shares of ", capacity())
      .Because("CHANNEL_FULL")
      .With("capacity", std::to_string(capacity()));
}

Result<Share*> Channel::Next(ChannelEndId receiver) const {
  const Member* const member = FindMember(receiver);
  const uint64_t left = member == nullptr ? 0 : waiting(*member);
  if (left > 0) return queue_[queue_.size() - left];
  return NotFound("channel '", name_, "' is empty").Because("CHANNEL_EMPTY");
}

void Channel::PassedDirectly(uint64_t sent, uint64_t more) {
  past_.sent = std::max(past_.sent, sent);
  past_.begun = past_.begun || more > 0;
  totals_.sent += more;
  totals_.received += more;
  of_all_.sent += more;
  of_all_.received += more;
}

void Channel::Drop(uint64_t more) {
  totals_.dropped += more;
  of_all_.dropped += more;
}

void Channel::Push(Share& share) {
  ++past_.sent;
  past_.begun = true;
  ++totals_.sent;
  ++of_all_.sent;
  CountIn(share);
  queue_.push_back(&share);
  if (!past_.terms.drops()) return;
  for (Member& each : members_) {
    if (each.role != ChannelRole::kReceiver || waiting(each) <= capacity()) continue;
    ++each.passed;
    ++each.dropped;
    Drop(1);
  }
}

void Channel::Receive(ChannelEndId receiver) {
  ++totals_.received;
  ++of_all_.received;
  const auto member = std::ranges::find(members_, receiver, &Member::end);
  if (broadcasts()) {
    ++member->passed;
    return;
  }
  --queue_.front()->queued;
  CountOut(*queue_.front());
  queue_.pop_front();
}

void Channel::Miss(ChannelEndId receiver) {
  const auto member = std::ranges::find(members_, receiver, &Member::end);
  ++member->passed;
  ++member->dropped;
  Drop(1);
}

void Channel::PutBack(ChannelEndId receiver, Share& share, uint64_t sequence) {
  --totals_.received;
  --of_all_.received;
  if (!broadcasts()) return PushFront(share);
  const auto member = std::ranges::find(members_, receiver, &Member::end);
  if (member == members_.end()) return;
  const uint64_t later = past_.sent - sequence;
  const bool has_room = !past_.terms.drops() || later < capacity();
  if (member->passed == sequence && later == queue_.size() && has_room) PushFront(share);  // no other waits for it
  if (member->passed == sequence && later < queue_.size()) {
    --member->passed;
  } else {
    ++member->dropped;
    Drop(1);
  }
}

void Channel::PushFront(Share& share) {
  CountIn(share);
  queue_.push_front(&share);
}

void Channel::CountIn(Share& share) {
  ++share.queued;
  ++queued_in_namespace_;
  queued_bytes_ += share.size;
  uses_.Count(share, &Share::places, true);
}

void Channel::CountOut(Share& share) {
  --queued_in_namespace_;
  queued_bytes_ -= share.size;
  uses_.Count(share, &Share::places, false);
}

std::deque<Share*> Channel::TakePassed() {
  std::deque<Share*> passed;
  if (!broadcasts()) return passed;
  const uint64_t keep = std::max(std::min<uint64_t>(past_.terms.replayed(), queue_.size()), most_waiting());
  while (queue_.size() > keep) {
    CountOut(*queue_.front());
    passed.push_back(queue_.front());
    queue_.pop_front();
  }
  return passed;
}

std::deque<Share*> Channel::TakeQueue(bool drained) {
  if (!broadcasts()) Drop(queue_.size());
  for (Member& each : members_) {
    if (!broadcasts() || each.role != ChannelRole::kReceiver) continue;
    each.dropped += waiting(each);
    Drop(waiting(each));
    each.passed = past_.sent;
  }
  past_.taken = past_.sent;
  past_.drained = past_.drained || (drained && senders_ == 0);
  for (Share* const each : queue_) CountOut(*each);
  return std::exchange(queue_, {});
}

}  // namespace arraybridge::daemon
