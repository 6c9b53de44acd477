// SPDX-License-Identifier: Apache-2.0
// A channel's end without calls. Its direct channel is used from the moment the control block says that both ends have
// mapped it. A share that cannot travel in it goes by a call, which revokes it if entries stand there: the broker keeps
// the order, not this file.
#include <sched.h>

#include <algorithm>
#include <utility>

#include "client/arenas/placement_range.h"
#include "client/channels/channel.h"
#include "client/shares/acquire.h"
#include "client/shares/forward.h"
#include "client/shares/placement.h"
#include "client/shares/publish_limits.h"
#include "client/shares/put.h"

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
  const wire::MappedRequest request{.arena = arena.id};
  if (!session.Call(Verb::kMapped, wire::Encode(request), deadline).ok()) return false;
  arena.published_of.store(true, std::memory_order_relaxed);
  return true;
}

// On one processor the receiver then reads a large array while it lies in the cache. A sender that went on would first
// fill as many as the channel holds.
void LetReceiverRun(const Lifeline& lifeline, uint64_t bytes) {
  constexpr uint64_t kLarge = 1 << 20;
  if (bytes >= kLarge && lifeline.alone()) ::sched_yield();
}

}  // namespace

void Channel::End::PrefetchDirect() {
  {
    const MutexLock lock(mutex_);
    if (!options_.direct_channels || mode_ > ChannelMode::kQueue || requested_ || ++calls_ < ask_with_) return;
    requested_ = true;
  }
  const std::weak_ptr<End> weak = weak_from_this();
  // If a busy broker does not take the request now, this end does not repeat it: calls do as well.
  const wire::BrowseRequest request{.part = wire::BrowseRequest::Part::kDirectChannel, .channel = id_};
  static_cast<void>(session_->lifeline().Ask(Verb::kBrowse, wire::Encode(request), [weak](Result<Answer> answer) {
    if (const auto self = weak.lock()) self->HandleDirect(std::move(answer));
  }));
}

void Channel::End::HandleDirect(Result<Answer> answer) {
  const MutexLock lock(mutex_);
  if (answer.ok()) {
    std::vector<UniqueFd> files = std::move(answer->more);
    files.insert(files.begin(), std::move(answer->descriptor));
    const auto reply = codec::Read<wire::BrowseResponse>(answer->payload);
    return MapDirect(std::move(files),
                     reply.ok() ? Sender{reply->sender_process_id, std::string(reply->sender)} : Sender{});
  }
  requested_ = false;
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
  const wire::MappedRequest request{.direct_channel_of = id_, .direct_channel_number = number};
  static_cast<void>(session_->lifeline().Post(Verb::kMapped, wire::Encode(request)));
}

void Channel::End::CloseDirect(const void* ended, bool tell) {
  const MutexLock lock(mutex_);
  if (ended != producer_.get() && ended != consumer_.get()) return;
  producer_.reset();
  consumer_.reset();
  revoke_ = revoke_ || tell;
  requested_ = false;
  ask_with_ = calls_ + pause_;
  pause_ = std::min(pause_ * 2, kAskMost);
}

DirectWait Channel::End::WaitOf(const Until& until) const {
  return {session_->lifeline(), until, options_.spin, options_.interrupted};
}

std::shared_ptr<const Channel::End::Described> Channel::End::DescriptionOf(std::span<const View> arrays,
                                                                           Offsets offsets, const SendOptions& options,
                                                                           std::shared_ptr<const Described> last) {
  const auto same = [each = offsets](const codec::PublishedArray& before, const View& array) mutable {
    return IsSpecOf(before, array, each.Of(array));
  };
  if (last && last->structure == options.structure && last->metadata == options.metadata &&
      std::equal(last->arrays.begin(), last->arrays.end(), arrays.begin(), arrays.end(), same)) {
    return last;
  }
  // A share that the broker would refuse goes by a call, so that the broker refuses it.
  const Broker::PublishOptions description{.name = {}, .structure = options.structure, .metadata = options.metadata};
  if (!CheckPublish(session_->server().limits.share, options_.ns, arrays, description).ok()) return nullptr;
  auto specs = SpecsOf(arrays, offsets);
  std::string encoded = codec::EncodeDescription(specs, options.structure, options.metadata);
  if (encoded.size() > direct_channel::Format::kDescriptionBytesMax) return nullptr;
  auto described = std::make_shared<const Described>(
      Described{std::move(specs), options.structure, options.metadata, std::move(encoded)});
  const MutexLock lock(mutex_);
  return described_ = std::move(described);
}

Channel::End::Sending Channel::End::FindSending() {
  Sending found;
  {
    const MutexLock lock(mutex_);
    found = {producer_, described_};
  }
  found.producer = Standing(std::move(found.producer));
  const bool usable = found.producer && found.producer->opened() && session_->lifeline().alive();
  return usable ? std::move(found) : Sending();
}

std::optional<Status> Channel::End::SendDirect(const Placement& placement, const SendOptions& options,
                                               const Until& until) {
  Sending sending = FindSending();
  if (!sending.producer) return PrefetchDirect(), std::nullopt;
  const auto& range = placement.range();
  if (!MayTravelDirect(*range)) return std::nullopt;
  const auto described =
      DescriptionOf(placement.described(), Offsets(range->data()), options, std::move(sending.described));
  if (!described) return std::nullopt;
  if (!KnownToBeMapped(*session_, *range->arena, options_.timeout)) return std::nullopt;
  if (range->published.exchange(true)) {
    return FailedPrecondition("the placement is published already").Because("PLACEMENT_PUBLISHED");
  }
  const auto put = [&] { return sending.producer->Put(*range, described->encoded); };
  auto sent = PutDirect(*sending.producer, put, until);
  if (!sent || !sent->ok()) range->published.store(false);
  if (sent && sent->ok()) LetReceiverRun(session_->lifeline(), range->size);
  return sent;
}

// Looks for room first, so that it mostly copies nothing in vain.
bool Channel::End::TrySend(std::span<const View> sources, const SendOptions& options) {
  if (!CheckHere().ok()) return false;
  Sending sending = FindSending();
  if (!sending.producer || !sending.producer->MayHaveFreeSlot()) return false;
  const auto size = RangeBytesOf(sources);
  if (!size.ok() || !AllOnHost(sources)) return false;
  const auto lies_here = [this](const View& source) {
    return session_->written().Find(source.device, source.data, 1) || session_->read().FindAt(source.data, 1);
  };
  if (std::ranges::any_of(sources, lies_here)) return false;
  const auto described = DescriptionOf(sources, Offsets(nullptr), options, std::move(sending.described));
  if (!described) return false;
  session_->PollDirectChannels();
  const auto carving = session_->written().CarveForBroker(Device{}, *size);
  if (!carving) return false;
  Unpublished range(*session_, *carving);
  if (!carving->arena->published_of.load(std::memory_order_relaxed)) return false;
  CopyAll(sources, carving->arena->data() + carving->offset);
  const auto outcome = sending.producer->Put(*carving, *size, described->encoded);
  if (outcome == DirectProducer::Outcome::kSent || outcome == DirectProducer::Outcome::kLost) range.Keep();
  if (outcome == DirectProducer::Outcome::kEnded) CloseDirect(sending.producer.get(), false);
  if (outcome != DirectProducer::Outcome::kSent) return false;
  session_->direct_producers().Count();
  LetReceiverRun(session_->lifeline(), *size);
  return true;
}

std::optional<Status> Channel::End::PutDirect(DirectProducer& producer,
                                              const std::function<DirectProducer::Outcome()>& put, const Until& until) {
  while (true) {
    AB_RETURN_IF_ERROR(CheckHere());
    switch (put()) {
      case DirectProducer::Outcome::kSent:
        session_->direct_producers().Count();
        return Ok();
      case DirectProducer::Outcome::kByCall:
        return std::nullopt;
      case DirectProducer::Outcome::kEnded:
      case DirectProducer::Outcome::kLost:
        CloseDirect(&producer, false);
        return std::nullopt;
      case DirectProducer::Outcome::kFull:
        break;
    }
    const Status waited = IsOver(until) ? DeadlineExceeded("") : producer.AwaitFreeSlot(WaitOf(until));
    if (waited.code() == Code::kDeadlineExceeded) {
      return DeadlineExceeded("channel '", name_, "' is full: ", producer.capacity(), " shares of ",
                              producer.capacity())
          .Because("CHANNEL_FULL");
    }
    AB_RETURN_IF_ERROR(waited);
  }
}

std::optional<Result<Acquired>> Channel::End::TakeDirect(const std::shared_ptr<DirectConsumer>& consumer,
                                                         uint64_t received, MapMode mode, direct_channel::Entry* entry,
                                                         DirectConsumer::Outcome* outcome) {
  std::shared_ptr<ReadArena> arena;
  const auto maps = [&](const direct_channel::Header& of) {
    arena = session_->read().Find(of.arena, of.generation);
    return arena != nullptr;
  };
  uint64_t sequence = 0;
  *outcome = consumer->Take(session_->lifeline(), received, maps, entry, &sequence);
  if (*outcome != DirectConsumer::Outcome::kTaken) return std::nullopt;
  auto taken = TakeSent(*session_, consumer, *entry, std::move(arena), options_.ns, name_, mode);
  // An entry with a malformed description is lost, and the entries after it are not.
  if (taken.ok()) taken->sent = consumer->SentOf(*entry, sequence);
  return taken;
}

std::optional<Result<Acquired>> Channel::End::TryReceive(MapMode mode) {
  if (!CheckHere().ok() || !session_->lifeline().alive()) return std::nullopt;
  std::shared_ptr<DirectConsumer> consumer;
  uint64_t received = 0;
  {
    const MutexLock lock(mutex_);
    if (!kept_.empty() || unanswered_ != 0) return std::nullopt;
    consumer = consumer_;
    received = received_;
  }
  if (!consumer || !consumer->opened()) return std::nullopt;
  direct_channel::Entry entry;
  DirectConsumer::Outcome outcome{};
  return TakeDirect(consumer, received, mode, &entry, &outcome);
}

std::optional<Result<Acquired>> Channel::End::ReceiveDirect(const std::shared_ptr<DirectConsumer>& consumer,
                                                            uint64_t received, const ReceiveOptions& options,
                                                            const Until& until) {
  if (!consumer || !consumer->opened()) return PrefetchDirect(), std::nullopt;
  bool is_late = false;
  for (bool first = true;; first = false) {
    if (Status here = CheckHere(); !here.ok()) return here;
    if (!session_->lifeline().alive()) return std::nullopt;
    if (!first) {
      const MutexLock lock(mutex_);
      if (!kept_.empty()) return std::nullopt;
      received = received_;
    }
    direct_channel::Entry entry;
    DirectConsumer::Outcome outcome{};
    if (auto taken = TakeDirect(consumer, received, options.mode, &entry, &outcome)) return taken;
    switch (outcome) {
      case DirectConsumer::Outcome::kTaken:
      case DirectConsumer::Outcome::kByCalls:
        return std::nullopt;
      case DirectConsumer::Outcome::kEnded:
        CloseDirect(consumer.get(), false);
        return std::nullopt;
      case DirectConsumer::Outcome::kMalformed:
        CloseDirect(consumer.get(), true);
        return std::nullopt;
      case DirectConsumer::Outcome::kLacksArena: {
        const direct_channel::Header header = direct_channel::HeaderOf(entry);
        const Status mapped = MapSent(*session_, header, id_, steady_clock::now() + options_.timeout);
        if (mapped.ok()) {
          consumer->NoteArena(header.arena, header.generation);
          // The share is there, also for a caller that does not wait. Once: a sender may name ever new arenas.
          if (!IsOver(until) || !std::exchange(is_late, true)) continue;
          break;
        }
        // The sender's session may have ended, or the entry names another session's arena: the rest comes by calls.
        if (mapped.code() != Code::kNotFound) return Explain(mapped);
        CloseDirect(consumer.get(), true);
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

// An answer that is not counted yet may be a share that the broker has counted. The caller then asks once more. An end
// without an open direct channel asks the broker to revoke the direct channel.
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
