// A channel's end without calls. Its direct channel is used from the moment the control block says that both ends have
// mapped it. A share that cannot travel in it goes by a call, which revokes it if entries stand there: the broker keeps
// the order, not this file.
#include <algorithm>
#include <utility>

#include "client/arenas/placement_range.h"
#include "client/channels/channel.h"
#include "client/shares/acquire.h"
#include "client/shares/placement.h"

namespace arraybridge {
namespace {

using std::chrono::steady_clock;

// Host memory whose bytes are there.
bool MayTravelDirect(const Placement::Range& range) {
  return range.arena->kind == HandleKind::kMemfd && !range.arena->own && range.queued.empty();
}

// The broker exports an arena to the receiver only after the sender has said Mapped. Called once for each arena.
bool KnownToBeMapped(Session& session, WrittenArena& arena, std::chrono::milliseconds timeout) {
  if (arena.published_of.load(std::memory_order_relaxed)) return true;
  const Deadline deadline = steady_clock::now() + timeout;
  if (!session.Call(Verb::kMapped, codec::EncodeMapped(arena.id), deadline).ok()) return false;
  arena.published_of.store(true, std::memory_order_relaxed);
  return true;
}

}  // namespace

void Channel::End::PrefetchDirect() {
  {
    const MutexLock lock(mutex_);
    if (!options_.direct_channels || mode_ > ChannelMode::kQueue || asked_ || ++calls_ < ask_with_) return;
    asked_ = true;
  }
  const std::weak_ptr<End> weak = weak_from_this();
  // If a busy broker does not take the request now, this end does not repeat it: calls do as well.
  static_cast<void>(
      session_->lifeline().Ask(Verb::kBrowse, codec::EncodeBrowseDirect(id_), [weak](Result<Answer> answer) {
        if (const auto self = weak.lock()) self->HandleDirect(std::move(answer));
      }));
}

void Channel::End::HandleDirect(Result<Answer> answer) {
  const MutexLock lock(mutex_);
  if (answer.ok()) {
    std::vector<UniqueFd> files = std::move(answer->more);
    files.insert(files.begin(), std::move(answer->descriptor));
    auto sender = codec::DecodeDirectSender(answer->payload);
    return MapDirect(std::move(files), sender.ok() ? *std::move(sender) : Sender{});
  }
  asked_ = false;
  ask_with_ = calls_ + pause_;
  pause_ = std::min(pause_ * 2, kAskMost);
}

// If this process cannot map it, it does not ask again.
void Channel::End::MapDirect(std::vector<UniqueFd> files, Sender sender) {
  auto pages = DirectPages::Map(role_ == Role::kSender, files);
  if (!pages.ok()) return;
  std::unique_ptr<DirectPages> mapped = *std::move(pages);
  const uint64_t number = mapped->control().number;
  if (role_ == Role::kSender) {
    producer_ = std::make_shared<DirectProducer>(std::move(mapped), session_->lifeline(), session_->written());
  } else {
    consumer_ = std::make_shared<DirectConsumer>(std::move(mapped), std::move(sender));
    consumer_->NoteCalls(received_);
    session_->direct_consumers().Add(consumer_);
  }
  if (producer_) session_->direct_producers().Add(producer_);
  static_cast<void>(session_->lifeline().Post(Verb::kMapped, codec::EncodeDirectMapped(id_, number)));
}

void Channel::End::LeaveDirect(const void* ended, bool tell) {
  const MutexLock lock(mutex_);
  if (ended != producer_.get() && ended != consumer_.get()) return;
  producer_.reset();
  consumer_.reset();
  revoke_ = revoke_ || tell;
  asked_ = false;
  ask_with_ = calls_ + pause_;
  pause_ = std::min(pause_ * 2, kAskMost);
}

DirectWait Channel::End::WaitOf(const Until& until) const {
  return {session_->lifeline(), until, options_.spin, options_.interrupted};
}

std::shared_ptr<const Channel::End::Described> Channel::End::DescriptionOf(const Placement& placement,
                                                                           const SendOptions& options,
                                                                           std::shared_ptr<const Described> last) {
  const std::byte* const start = placement.range()->data();
  const auto same = [start](const codec::PublishedArray& array, const View& view) {
    return IsSpecOf(array, view, start);
  };
  if (last && last->structure == options.structure && last->metadata == options.metadata &&
      std::ranges::equal(last->arrays, placement.described(), same)) {
    return last;
  }
  std::vector<codec::PublishedArray> arrays;
  arrays.reserve(placement.described().size());
  for (const View& view : placement.described()) arrays.push_back(SpecOf(view, start));
  std::string encoded = codec::EncodeDescription(arrays, options.structure, options.metadata);
  if (encoded.size() > direct_channel::Format::kDescriptionBytesMax) return nullptr;
  auto described = std::make_shared<const Described>(
      Described{std::move(arrays), options.structure, options.metadata, std::move(encoded)});
  const MutexLock lock(mutex_);
  return described_ = std::move(described);
}

std::optional<Status> Channel::End::SendDirect(const Placement& placement, const SendOptions& options,
                                               const Until& until) {
  std::shared_ptr<DirectProducer> known;
  std::shared_ptr<const Described> last;
  {
    const MutexLock lock(mutex_);
    known = producer_;
    last = described_;
  }
  const auto producer = Standing(std::move(known));
  if (!producer || !producer->opened()) return PrefetchDirect(), std::nullopt;
  const auto& range = placement.range();
  if (!MayTravelDirect(*range) || !session_->lifeline().alive()) return std::nullopt;
  const auto described = DescriptionOf(placement, options, std::move(last));
  if (!described) return std::nullopt;
  // A share that the broker would refuse goes by a call, so that the broker refuses it.
  const ShareLimits& limits = session_->server().limits.share;
  if (options.structure.size() > limits.structure_bytes_max || options.metadata.size() > limits.metadata_bytes_max) {
    return std::nullopt;
  }
  if (!KnownToBeMapped(*session_, *range->arena, options_.timeout)) return std::nullopt;
  if (range->published.exchange(true)) {
    return FailedPrecondition("the placement is published already").Because("PLACEMENT_PUBLISHED");
  }
  auto sent = PutDirect(*producer, placement, described->encoded, until);
  if (!sent || !sent->ok()) range->published.store(false);
  return sent;
}

std::optional<Status> Channel::End::PutDirect(DirectProducer& producer, const Placement& placement,
                                              std::string_view description, const Until& until) {
  while (true) {
    AB_RETURN_IF_ERROR(CheckHere());
    switch (producer.Put(placement.range(), description)) {
      case DirectProducer::Outcome::kSent:
        session_->direct_producers().Count();
        return Ok();
      case DirectProducer::Outcome::kByCall:
        return std::nullopt;
      case DirectProducer::Outcome::kEnded:
        LeaveDirect(&producer, false);
        return std::nullopt;
      case DirectProducer::Outcome::kFull:
        break;
    }
    const Status waited = IsOver(until) ? DeadlineExceeded("") : producer.AwaitRoom(WaitOf(until));
    if (waited.code() == Code::kDeadlineExceeded) {
      return DeadlineExceeded("channel '", name_, "' is full: ", producer.capacity(), " shares of ",
                              producer.capacity())
          .Because("CHANNEL_FULL");
    }
    AB_RETURN_IF_ERROR(waited);
  }
}

std::optional<Result<Acquired>> Channel::End::ReceiveDirect(const std::shared_ptr<DirectConsumer>& consumer,
                                                            uint64_t received, const ReceiveOptions& options,
                                                            const Until& until) {
  if (!consumer || !consumer->opened()) return PrefetchDirect(), std::nullopt;
  for (bool first = true;; first = false) {
    if (Status here = CheckHere(); !here.ok()) return here;
    if (!session_->lifeline().alive()) return std::nullopt;
    if (!first) {
      const MutexLock lock(mutex_);
      if (!kept_.empty()) return std::nullopt;
      received = received_;
    }
    direct_channel::Entry entry;
    std::shared_ptr<ReadArena> arena;
    const auto maps = [&](const direct_channel::Header& of) {
      arena = session_->read().Find(of.arena, of.generation);
      return arena != nullptr;
    };
    uint64_t sequence = 0;
    switch (consumer->Take(session_->lifeline(), received, maps, &entry, &sequence)) {
      case DirectConsumer::Outcome::kTaken: {
        auto taken = TakeSent(*session_, consumer, entry, std::move(arena), options_.ns, name_, options.mode);
        // An entry with a malformed description is lost, and the entries after it are not.
        if (!taken.ok()) return taken.status();
        taken->sent = consumer->SentOf(entry, sequence);
        return taken;
      }
      case DirectConsumer::Outcome::kByCalls:
        return std::nullopt;
      case DirectConsumer::Outcome::kEnded:
        LeaveDirect(consumer.get(), false);
        return std::nullopt;
      case DirectConsumer::Outcome::kMalformed:
        LeaveDirect(consumer.get(), true);
        return std::nullopt;
      case DirectConsumer::Outcome::kLacksArena: {
        const Status mapped =
            MapSent(*session_, direct_channel::HeaderOf(entry), id_, steady_clock::now() + options_.timeout);
        if (mapped.ok()) continue;
        // The sender's session may have ended, or the entry names another session's arena: the rest comes by calls.
        if (mapped.code() != Code::kNotFound) return Explain(mapped);
        LeaveDirect(consumer.get(), true);
        return std::nullopt;
      }
      case DirectConsumer::Outcome::kEmpty:
        break;
    }
    const Status waited = IsOver(until) ? DeadlineExceeded("") : consumer->AwaitEntry(received, WaitOf(until));
    if (waited.code() == Code::kDeadlineExceeded) {
      return DeadlineExceeded("nothing was sent into channel '", name_, "' in time").Because("CHANNEL_EMPTY");
    }
    if (!waited.ok()) return Explain(waited);
  }
}

// While another answer is not counted yet, it may be one of those that the broker has counted: then the caller asks
// once more. An end without an open direct channel asks the broker to revoke the one that the broker means.
void Channel::End::CaughtUp(uint64_t counted) {
  const MutexLock lock(mutex_);
  if (!consumer_ || !consumer_->opened()) revoke_ = true;
  if (asking_ != 0 || unanswered_ != 0) return;
  received_ = std::max(received_, counted);
  if (consumer_) consumer_->NoteCalls(received_);
}

void Channel::End::CountReceived() {
  ++received_;
  if (consumer_) consumer_->NoteCalls(received_);
}

}  // namespace arraybridge
