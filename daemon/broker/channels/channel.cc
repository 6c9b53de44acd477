#include "daemon/broker/channels/channel.h"

#include <algorithm>

#include "daemon/broker/channels/direct_channel_record.h"
#include "daemon/broker/shares/share.h"

namespace arraybridge {

Status Channel::Agree(uint64_t capacity) {
  if (capacity == 0 || capacity == capacity_) return Ok();
  if (capacity_ == 0) {
    capacity_ = capacity;
    return Ok();
  }
  return FailedPrecondition("channel '", name_, "' was opened with a capacity of ", capacity_, ", not ", capacity)
      .Because("CHANNEL_CAPACITY")
      .With("capacity", std::to_string(capacity_));
}

uint64_t Channel::Open(const Member& member) {
  members_.push_back(member);
  if (member.role == ChannelRole::kSender) {
    if (senders_++ == 0) ++stream_;
    return to_senders_.last();
  }
  ++receivers_;
  had_receivers_ = true;
  // The first notice whose shares wait here is this receiver's too. If none waits and no stream runs, a receiver that
  // came late still learns that the stream ended in order. It is not told of deaths before its time.
  uint64_t seen = to_receivers_.last() - (ended_in_order() ? 1 : 0);
  for (const Notice* next = to_receivers_.After(0); next != nullptr; next = to_receivers_.After(next->number)) {
    if (next->after > taken()) return std::min(seen, next->number - 1);
  }
  return seen;
}

bool Channel::ended_in_order() const {
  const Notice* const newest = to_receivers_.newest();
  return senders_ == 0 && newest != nullptr && newest->how == EndedHow::kClosed && !newest->missing;
}

// A receiver that died may have been told too late to act on it: it had not yet closed the next channel of a pipeline.
bool Channel::end_is_untold() const {
  if (!ended_in_order() || receivers_ > 0) return false;
  if (!had_receivers_) return true;
  const Notice* const last = to_senders_.newest();
  return last->how == EndedHow::kDied ||
         (last->how == EndedHow::kAbandoned && told_to_receiver_ < to_receivers_.last());
}

void Channel::Close(ChannelEndId id, Notice end) {
  const auto found = std::ranges::find(members_, id, &Member::end);
  AB_CHECK(found != members_.end());
  const ChannelRole role = found->role;
  members_.erase(found);
  end.after = sent_;
  end.stream = stream_;
  if (role == ChannelRole::kReceiver) {
    if (--receivers_ == 0) to_senders_.Add(std::move(end));
    return;
  }
  end.missing = std::exchange(missing_, false);
  // Of senders that close in order, the last one ends the stream.
  if (--senders_ == 0 || end.how != EndedHow::kClosed || end.missing) to_receivers_.Add(std::move(end));
}

Status Channel::NoticeTo(ChannelRole role, uint64_t seen) {
  const bool receives = role == ChannelRole::kReceiver;
  const Notice* const next = (receives ? to_receivers_ : to_senders_).After(seen);
  if (next == nullptr || (receives && next->after > taken())) return Ok();
  if (!receives) return ToSender(*next, name_);
  told_to_receiver_ = std::max(told_to_receiver_, next->number);
  return ToReceiver(*next, name_);
}

Status Channel::CheckSend(bool from_direct) const {
  // The queue and the direct channel together hold at most twice the capacity, even if a session miscounts.
  if (queue_.size() < (from_direct ? 2 : 1) * capacity()) return Ok();
  return ResourceExhausted("channel '", name_, "' is full: ", queue_.size(), " shares of ", capacity())
      .Because("CHANNEL_FULL")
      .With("capacity", std::to_string(capacity()));
}

Status Channel::CheckReceive() const {
  if (!queue_.empty()) return Ok();
  return NotFound("channel '", name_, "' is empty").Because("CHANNEL_EMPTY");
}

void Channel::Push(Share& share) {
  ++sent_;
  ++share.queued;
  ++queued_in_namespace_;
  queued_bytes_ += share.size;
  queue_.push_back(&share);
}

void Channel::PushFront(Share& share) {
  ++share.queued;
  ++queued_in_namespace_;
  queued_bytes_ += share.size;
  queue_.push_front(&share);
}

void Channel::Pop() {
  --queue_.front()->queued;
  --queued_in_namespace_;
  queued_bytes_ -= queue_.front()->size;
  queue_.pop_front();
}

std::deque<Share*> Channel::TakeQueue() {
  queued_in_namespace_ -= queue_.size();
  queued_bytes_ = 0;
  return std::exchange(queue_, {});
}

}  // namespace arraybridge
