#include "daemon/broker/channels/channel.h"

#include <algorithm>
#include <utility>

#include "daemon/broker/channels/direct_channel_record.h"
#include "daemon/broker/shares/share.h"

namespace arraybridge {

namespace {

std::string_view NameOf(ChannelMode mode) {
  return mode == ChannelMode::kLatest ? "latest" : mode == ChannelMode::kBroadcast ? "broadcast" : "queue";
}

// "broadcast, drop_oldest, replay 3"
std::string Named(const ChannelTerms& terms) {
  std::string named(NameOf(terms.mode));
  if (terms.mode != ChannelMode::kBroadcast) return named;
  return named += Concat(terms.drop_oldest ? ", drop_oldest" : ", block", ", replay ", terms.replay);
}

bool SameMode(const ChannelTerms& one, const ChannelTerms& other) {
  return one.mode == other.mode && one.drop_oldest == other.drop_oldest && one.replay == other.replay;
}

}  // namespace

Status Channel::Agree(const ChannelTerms& stated) {
  ChannelTerms agreed = past_.terms;
  agreed.mode = mode();
  const bool says_mode = stated.mode != ChannelMode::kUnset;
  if (says_mode && agreed.mode != ChannelMode::kUnset && !SameMode(agreed, stated)) {
    return FailedPrecondition("channel '", name_, "' has mode ", Named(agreed), ", not ", Named(stated),
                              agreed.mode == ChannelMode::kQueue
                                  ? ": a channel whose ends state no mode is a queue from "
                                    "its first array on"
                                  : "")
        .Because("CHANNEL_MODE")
        .With("mode", std::string(NameOf(agreed.mode)));
  }
  if (stated.capacity != 0 && agreed.capacity != 0 && stated.capacity != agreed.capacity) {
    const bool latest = stated.mode == ChannelMode::kLatest;
    return FailedPrecondition("channel '", name_, "' was opened with a capacity of ", agreed.capacity, ", not ",
                              stated.capacity, latest ? ", which mode latest has" : "")
        .Because("CHANNEL_CAPACITY")
        .With("capacity", std::to_string(agreed.capacity));
  }
  if (stated.capacity != 0) agreed.capacity = stated.capacity;
  if (says_mode) agreed = {agreed.capacity, stated.mode, stated.drop_oldest, stated.replay};
  const uint64_t capacity = agreed.capacity == 0 ? kChannelCapacityDefault : agreed.capacity;
  if (agreed.replay > capacity) {
    return FailedPrecondition("channel '", name_, "' cannot replay ", agreed.replay, " shares: its capacity is ",
                              capacity)
        .Because("CHANNEL_CAPACITY")
        .With("capacity", std::to_string(capacity));
  }
  past_.terms = agreed;
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
    const uint64_t most = past_.terms.drop_oldest ? std::min<uint64_t>(capacity(), queue_.size()) : queue_.size();
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

uint64_t Channel::Open(Member member) {
  member.passed = past_.sent - std::min<uint64_t>(past_.terms.replay, queue_.size());
  members_.push_back(member);
  if (member.role == ChannelRole::kSender) {
    if (senders_++ == 0) ++past_.stream;
    return past_.to_senders.last();
  }
  ++receivers_;
  past_.had_receivers = true;
  const uint64_t last = past_.to_receivers.last();
  // Replayed shares bring no notices of their time.
  if (broadcasts() && senders_ > 0) return last;
  // The first notice whose shares wait here is this receiver's too. If none waits and no stream runs, a receiver that
  // came late still learns that the stream ended in order. It is not told of deaths before its time.
  const uint64_t seen = last - (ended_in_order() ? 1 : 0);
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
bool Channel::end_is_untold() const {
  if (!ended_in_order() || receivers_ > 0) return false;
  if (!past_.had_receivers) return true;
  const Notice* const last = past_.to_senders.newest();
  return last->how == EndedHow::kDied ||
         (last->how == EndedHow::kAbandoned && past_.told_to_receiver < past_.to_receivers.last());
}

void Channel::Close(ChannelEndId id, Notice end, uint64_t received) {
  const auto found = std::ranges::find(members_, id, &Member::end);
  AB_CHECK(found != members_.end());
  const ChannelRole role = found->role;
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
        broadcasts() ? nullptr : past_.to_senders.After(seen);  // a broadcast goes on without receivers
    return next == nullptr ? Ok() : ToSender(*next, name_);
  }
  const Notice* const next = past_.to_receivers.After(seen);
  if (next == nullptr || next->after > Passed(*member)) return Ok();
  past_.told_to_receiver = std::max(past_.told_to_receiver, next->number);
  return ToReceiver(*next, name_);
}

Status Channel::CheckSend(bool from_direct) const {
  uint64_t most = 0;
  if (!broadcasts()) {
    // The queue and the direct channel together hold at most twice the capacity, even if a session miscounts.
    most = queue_.size() / (from_direct ? 2 : 1);
  } else if (!past_.terms.drop_oldest) {
    for (const Member& each : members_) most = std::max(most, each.role == ChannelRole::kReceiver ? waiting(each) : 0);
  }
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
  ++share.queued;
  ++queued_in_namespace_;
  queued_bytes_ += share.size;
  queue_.push_back(&share);
  if (!past_.terms.drop_oldest) return;
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
  --queued_in_namespace_;
  queued_bytes_ -= queue_.front()->size;
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
  const bool has_room = !past_.terms.drop_oldest || later < capacity();
  if (member->passed == sequence && later == queue_.size() && has_room) PushFront(share);  // no other waits for it
  if (member->passed == sequence && later < queue_.size()) {
    --member->passed;
  } else {
    ++member->dropped;
    Drop(1);
  }
}

void Channel::PushFront(Share& share) {
  ++share.queued;
  ++queued_in_namespace_;
  queued_bytes_ += share.size;
  queue_.push_front(&share);
}

std::deque<Share*> Channel::TakePassed() {
  std::deque<Share*> passed;
  if (!broadcasts()) return passed;
  uint64_t keep = std::min<uint64_t>(past_.terms.replay, queue_.size());
  for (const Member& each : members_) {
    if (each.role == ChannelRole::kReceiver) keep = std::max(keep, waiting(each));
  }
  while (queue_.size() > keep) {
    --queued_in_namespace_;
    queued_bytes_ -= queue_.front()->size;
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
  past_.drained = past_.drained || drained;
  queued_in_namespace_ -= queue_.size();
  queued_bytes_ = 0;
  return std::exchange(queue_, {});
}

}  // namespace arraybridge
