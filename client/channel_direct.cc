// A channel's end without calls. The pages come in four answers, and the direct channel is used from the moment the control block says
// that both ends have them. Whatever does not go there goes by a call, which ends the direct channel if something stands on it:
// the order is kept by the broker, not here.
#include <utility>

#include "client/acquire.h"
#include "client/channel.h"
#include "client/placement.h"
#include "client/placement_range.h"

namespace arraybridge {
namespace {

using codec::BrowsePart;
using std::chrono::steady_clock;

bool IsOver(const std::optional<Deadline>& until) { return until && steady_clock::now() >= *until; }

// Host memory whose bytes are there.
bool MayTravelDirect(const Placement::Range& range) {
  return range.arena->kind == HandleKind::kMemfd && !range.arena->own && range.queued.empty();
}

// The broker gives the receiver no arena of which it does not know that it is mapped. Asked once an arena.
bool KnownToBeMapped(Session& session, WrittenArena& arena, Deadline deadline) {
  if (arena.published_of.load(std::memory_order_relaxed)) return true;
  if (!session.Call(Verb::kMapped, codec::EncodeMapped(arena.id), deadline).ok()) return false;
  arena.published_of.store(true, std::memory_order_relaxed);
  return true;
}

}  // namespace

void Channel::End::PrefetchDirect() {
  {
    const MutexLock lock(mutex_);
    if (!options_.direct_channels || asked_ || ++calls_ < ask_with_) return;
    asked_ = true;
  }
  const std::weak_ptr<End> weak = weak_from_this();
  // What a busy broker does not take now is not asked again: calls do as well. They are answered in their order.
  for (const auto part : {BrowsePart::kDirectOwn, BrowsePart::kDirectOther, BrowsePart::kDirectControl,
                          BrowsePart::kDirectOtherDoorbell, BrowsePart::kDirectDoorbell}) {
    const Status asked = session_->lifeline().Ask(Verb::kBrowse, codec::EncodeBrowseDirect(id_, part),
                                                  [weak, part](Result<Answer> answer) {
                                                    const auto self = weak.lock();
                                                    if (self) self->HandleDirect(part, std::move(answer));
                                                  });
    if (!asked.ok()) return;
  }
}

void Channel::End::HandleDirect(BrowsePart part, Result<Answer> answer) {
  const MutexLock lock(mutex_);
  UniqueFd file = answer.ok() ? std::move(answer->descriptor) : UniqueFd();
  UniqueFd* its = &files_.doorbell;
  if (part == BrowsePart::kDirectOwn) its = &files_.own;
  if (part == BrowsePart::kDirectOther) its = &files_.other;
  if (part == BrowsePart::kDirectControl) its = &files_.control;
  if (part == BrowsePart::kDirectOtherDoorbell) its = &files_.other_doorbell;
  *its = std::move(file);
  if (part != BrowsePart::kDirectDoorbell) return;
  if (files_.complete()) return MapDirect();
  files_ = {};
  asked_ = false;
  ask_with_ = calls_ + pause_;
  pause_ = std::min(pause_ * 2, kAskMost);
}

// What this process cannot map it is not asked for again.
void Channel::End::MapDirect() {
  auto pages = DirectPages::Map(role_ == Role::kSender, std::exchange(files_, {}));
  if (!pages.ok()) return;
  std::unique_ptr<DirectPages> mapped = *std::move(pages);
  if (role_ == Role::kSender) {
    sent_ = std::make_shared<DirectProducer>(std::move(mapped), session_->lifeline(), session_->written());
  } else {
    taken_ = std::make_shared<DirectConsumer>(std::move(mapped));
    taken_->NoteCalls(received_);
  }
  if (sent_) session_->direct_channels().Add(sent_);
  static_cast<void>(session_->lifeline().Post(Verb::kMapped, codec::EncodeDirectMapped(id_)));
}

void Channel::End::LeaveDirect(bool tell) {
  const MutexLock lock(mutex_);
  sent_.reset();
  taken_.reset();
  revoke_ = revoke_ || tell;
  asked_ = false;
  ask_with_ = calls_ + pause_;
  pause_ = std::min(pause_ * 2, kAskMost);
}

std::shared_ptr<DirectProducer> Channel::End::direct_producer() {
  const MutexLock lock(mutex_);
  return sent_;
}

std::shared_ptr<DirectConsumer> Channel::End::direct_consumer() {
  const MutexLock lock(mutex_);
  return taken_;
}

DirectWait Channel::End::WaitOf(const Until& until) const {
  return {session_->lifeline(), until, options_.spin, options_.interrupted};
}

std::optional<Status> Channel::End::SendDirect(const Placement& placement, const SendOptions& options,
                                               const Until& until) {
  const auto direct = direct_producer();
  if (!direct || !direct->opened()) return PrefetchDirect(), std::nullopt;
  const auto& range = placement.range();
  if (!MayTravelDirect(*range) || !session_->lifeline().alive()) return std::nullopt;
  std::vector<codec::PublishedArray> arrays;
  arrays.reserve(placement.described().size());
  for (const View& view : placement.described()) arrays.push_back(SpecOf(view, range->data()));
  const std::string description = codec::EncodeDescription(arrays, options.structure, options.metadata);
  if (description.size() > direct_channel::kDescriptionBytesMax) return std::nullopt;
  // What the broker would refuse it refuses: it is asked.
  const ShareLimits& limits = session_->server().limits.share;
  if (options.structure.size() > limits.structure_bytes_max || options.metadata.size() > limits.metadata_bytes_max) {
    return std::nullopt;
  }
  if (!KnownToBeMapped(*session_, *range->arena, steady_clock::now() + options_.timeout)) return std::nullopt;
  if (range->published.exchange(true)) {
    return FailedPrecondition("the placement is published already").Because("PLACEMENT_PUBLISHED");
  }
  auto sent = PutDirect(*direct, placement, description, until);
  if (!sent || !sent->ok()) range->published.store(false);
  return sent;
}

std::optional<Status> Channel::End::PutDirect(DirectProducer& direct, const Placement& placement, std::string_view description,
                                              const Until& until) {
  while (true) {
    AB_RETURN_IF_ERROR(CheckHere());
    switch (direct.Put(placement.range(), description)) {
      case DirectProducer::Outcome::kSent:
        session_->direct_channels().Count();
        return Ok();
      case DirectProducer::Outcome::kByCall:
        return std::nullopt;
      case DirectProducer::Outcome::kEnded:
        LeaveDirect(false);
        return std::nullopt;
      case DirectProducer::Outcome::kFull:
        break;
    }
    const Status waited = IsOver(until) ? DeadlineExceeded("") : direct.AwaitRoom(WaitOf(until));
    if (waited.code() == Code::kDeadlineExceeded) {
      return DeadlineExceeded("channel '", name_, "' is full: ", direct.capacity(), " shares of ", direct.capacity())
          .Because("CHANNEL_FULL");
    }
    AB_RETURN_IF_ERROR(waited);
  }
}

std::optional<Result<Acquired>> Channel::End::ReceiveDirect(const ReceiveOptions& options, const Until& until) {
  const auto direct = direct_consumer();
  if (!direct || !direct->opened()) return PrefetchDirect(), std::nullopt;
  while (true) {
    if (Status here = CheckHere(); !here.ok()) return here;
    if (!session_->lifeline().alive()) return std::nullopt;
    uint64_t received = 0;
    {
      const MutexLock lock(mutex_);
      if (!kept_.empty()) return std::nullopt;
      received = received_;
    }
    direct_channel::Message entry;
    std::shared_ptr<ReadArena> arena;
    const auto has = [&](const direct_channel::Message& of) {
      arena = session_->read().Find(of.arena, of.generation);
      return arena != nullptr;
    };
    switch (direct->Take(session_->lifeline(), received, has, &entry)) {
      case DirectConsumer::Outcome::kTaken: {
        auto taken = TakeSent(*session_, direct, entry, std::move(arena), options_.ns, name_, options.mode);
        // What is described so that nobody can read it is the sender's fault: it is lost, and what follows is not.
        if (!taken.ok()) return taken.status();
        return taken;
      }
      case DirectConsumer::Outcome::kByCalls:
        return std::nullopt;
      case DirectConsumer::Outcome::kEnded:
        LeaveDirect(false);
        return std::nullopt;
      case DirectConsumer::Outcome::kNonsense:
        LeaveDirect(true);
        return std::nullopt;
      case DirectConsumer::Outcome::kLacksArena: {
        const Status mapped = MapSent(*session_, entry, id_, steady_clock::now() + options_.timeout);
        if (mapped.ok()) continue;
        // Its sender may have ended, or named what it has not: what is there then comes by calls.
        if (mapped.code() != Code::kNotFound) return Explain(mapped);
        LeaveDirect(true);
        return std::nullopt;
      }
      case DirectConsumer::Outcome::kEmpty:
        break;
    }
    const Status waited = IsOver(until) ? DeadlineExceeded("") : direct->AwaitEntry(received, WaitOf(until));
    if (waited.code() == Code::kDeadlineExceeded) {
      return DeadlineExceeded("nothing was sent into channel '", name_, "' in time").Because("CHANNEL_EMPTY");
    }
    if (!waited.ok()) return Explain(waited);
  }
}

void Channel::End::CaughtUp(uint64_t counted) {
  const MutexLock lock(mutex_);
  received_ = std::max(received_, counted);
  if (taken_) taken_->NoteCalls(received_);
}

void Channel::End::CountReceived() {
  ++received_;
  if (taken_) taken_->NoteCalls(received_);
}

}  // namespace arraybridge
