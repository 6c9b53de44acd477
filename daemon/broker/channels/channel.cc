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

void Channel::Open(const Member& member) {
  const bool sends = member.role == ChannelRole::kSender;
  members_.push_back(member);
  ++(sends ? senders_ : receivers_);
  (sends ? had_senders_ : had_receivers_) = true;
}

void Channel::Close(ChannelEndId end, bool complete) {
  const auto found = std::ranges::find(members_, end, &Member::end);
  AB_CHECK(found != members_.end());
  const ChannelRole role = found->role;
  members_.erase(found);
  if (role == ChannelRole::kReceiver) {
    --receivers_;
    return;
  }
  --senders_;
  if (!complete) incomplete_ = true;
}

Status Channel::CheckSend(bool from_direct) const {
  if (receivers_ == 0 && had_receivers_) {
    return FailedPrecondition("channel '", name_, "' has no receiver any more").Because("NO_RECEIVER");
  }
  // The queue and the direct channel together hold at most twice the capacity, even if a session miscounts.
  if (queue_.size() < (from_direct ? 2 : 1) * capacity()) return Ok();
  return ResourceExhausted("channel '", name_, "' is full: ", queue_.size(), " shares of ", capacity())
      .Because("CHANNEL_FULL")
      .With("capacity", std::to_string(capacity()));
}

Status Channel::CheckReceive() const {
  if (!queue_.empty()) return Ok();
  if (senders_ > 0 || !had_senders_) {
    return NotFound("channel '", name_, "' is empty").Because("CHANNEL_EMPTY");
  }
  if (!incomplete_) {
    return Status(Code::kOutOfRange, Concat("channel '", name_, "' has ended: its senders have closed it"),
                  "CHANNEL_ENDED");
  }
  return Status(Code::kAborted, Concat("a sender of channel '", name_, "' ended without closing it"), "SENDER_DIED");
}

void Channel::Push(Share& share) {
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
