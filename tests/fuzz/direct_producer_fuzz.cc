// SPDX-License-Identifier: Apache-2.0
// The page of a hostile receiver, while a client sends to it, allocates and releases, and the broker ends the direct
// channel. For any content of the page, no bytes are reused that a view of this process shows, that wait to be taken,
// that the broker has put into the channel's queue, or that shares of the broker use; and when all sides have ended,
// all memory is free again.
//
// An input is the direct channel's capacity, then steps: a byte for the kind of step, and its operands.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/arenas/placement_range.h"
#include "client/direct_channels/direct_producer.h"
#include "tests/fuzz/input.h"
#include "tests/unit/boundary/direct_entries.h"
#include "tests/unit/client/mapped_direct.h"
#include "tests/unit/client/quiet_session.h"
#include "tests/unit/client/static_mapping.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kArenaBytes = StaticMapping::kBytes;
constexpr size_t kStepsMost = 96;

// A range of the arena, and its possible users.
struct Sending {
  uint64_t offset = 0;
  uint64_t size = 0;
  std::shared_ptr<Placement::Range> views;  // views of this process; null: there are none
  std::optional<uint64_t> index;            // index of its entry, after it was sent
  bool queued = false;                      // the broker has queued it and has not returned it yet
  std::optional<uint64_t> kept;             // the return bit under which shares of the broker use it
  bool carved_again = false;                // its bytes have been reused
};

class Stream {
 public:
  Stream(QuietSession& session, uint64_t capacity)
      : session_(session),
        capacity_(capacity),
        direct_(*DirectChannel::Create(capacity, 1)),
        sent_(MapDirect(*direct_, DirectEnd::kProducer), session_->lifeline(), session_->written()),
        hostile_(MapDirect(*direct_, DirectEnd::kConsumer)) {
    direct_->Open(0, 0, 1);
    Handle handle;
    handle.arena = 1;
    handle.generation = 7;
    handle.arena_size = kArenaBytes;
    arena_ = std::make_shared<WrittenArena>(handle, std::make_unique<StaticMapping>(), false);
    Carved(session_->written().Add(arena_, Carver::Granules(1)));
  }
  ~Stream() {
    Revoke();
    direct_->MarkGone();
    for (Sending& each : sendings_) each.views.reset();
    Forgo();
    session_.Settle();
    sent_.Poll();
    Return();
    AB_CHECK(sent_.Poll() && sent_.outstanding() == 0);
    arena_.reset();
    AB_CHECK(session_->written().TakeEmpty(WrittenArenas::Instant::max()) == std::vector<uint64_t>{1});
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void Step(Input& input) {
    switch (input.Take<uint8_t>() % 12) {
      case 0:
        return Carve(input);
      case 1:
        return PutCopy(input);
      case 2:
      case 3:
        return Put(input);
      case 4:
        if (Sending* const of = Choose(input)) {
          of->views.reset();
          if (input.Take<uint8_t>() % 2 == 0) session_.Settle();
        }
        return;
      case 5:
        return Scribble(input);
      case 6:
        return TellTaken(Load(page().progress.taken, std::memory_order_relaxed) + input.Take<int8_t>());
      case 7:
        return Take(false);
      case 8:
        return (void)sent_.Poll();
      case 9:
        return Wait();
      case 10:
        if (!revoked_ && input.Take<uint8_t>() % 2 == 0) return direct_->AddCall();
        return Return();
      default:
        return End(input);
    }
  }

 private:
  direct_channel::ConsumerPage& page() { return *static_cast<direct_channel::ConsumerPage*>(hostile_->own()); }

  Sending* Choose(Input& input) {
    return sendings_.empty() ? nullptr : &sendings_[input.Take<uint8_t>() % sendings_.size()];
  }

  // Whether a process may still read the range.
  bool IsInUse(const Sending& of) const {
    if (of.views || of.queued || of.kept) return true;
    // It is on the direct channel, and the receiver has not yet claimed that it has taken it.
    return of.index && !revoked_ && *of.index >= taken_most_;
  }

  // Returns the bytes that were carved.
  uint64_t CheckCarved(const WrittenArenas::Carving& carving) {
    const uint64_t size = Carver::Granules(1) * size_;
    AB_CHECK(carving.offset <= kArenaBytes && size <= kArenaBytes - carving.offset);
    for (Sending& other : sendings_) {
      if (other.offset >= carving.offset + size || carving.offset >= other.offset + other.size) continue;
      AB_CHECK(!IsInUse(other));
      other.carved_again = true;
    }
    return size;
  }

  void Carved(const WrittenArenas::Carving& carving) {
    const uint64_t size = CheckCarved(carving);
    auto range = session_->reclaimer().Adopt(
        std::make_unique<Placement::Range>(session_->shared_releases(), carving.arena, carving.offset, size));
    AB_CHECK(range.ok());
    std::memset((*range)->data(), static_cast<int>(sendings_.size()), size);
    sendings_.push_back({carving.offset, size, *std::move(range), {}, false, {}, false});
  }

  void Carve(Input& input) {
    size_ = input.Take<uint8_t>() % 16 + 1;
    const auto carving = session_->written().Carve(Device{}, Carver::Granules(1) * size_);
    if (carving) Carved(*carving);
  }

  void Put(Input& input) {
    Sending* const of = Choose(input);
    if (of == nullptr || !of->views || of->index) return;
    if (Sent(sent_.Put(*of->views, DescriptionOf(input)))) of->index = head_ - 1;
  }

  // Bytes of which this process has no views.
  void PutCopy(Input& input) {
    size_ = input.Take<uint8_t>() % 16 + 1;
    const auto carving = session_->written().CarveForBroker(Device{}, Carver::Granules(1) * size_);
    if (!carving) return;
    const uint64_t size = CheckCarved(*carving);
    std::memset(carving->arena->data() + carving->offset, static_cast<int>(sendings_.size()), size);
    if (!Sent(sent_.Put(*carving, size, DescriptionOf(input)))) {
      return session_->written().ReleaseForBroker(carving->arena->id, carving->offset);
    }
    sendings_.push_back({carving->offset, size, nullptr, head_ - 1, false, {}, false});
  }

  std::string DescriptionOf(Input& input) const {
    std::string description = std::to_string(head_) + " ";
    description.resize(std::max<size_t>(description.size(),
                                        input.Take<uint8_t>() % (direct_channel::Format::kDescriptionBytesMax + 1)));
    return description;
  }

  bool Sent(DirectProducer::Outcome outcome) {
    AB_CHECK(!revoked_ || outcome == DirectProducer::Outcome::kEnded);
    const bool sent = outcome == DirectProducer::Outcome::kSent;
    if (sent) ++head_;
    AB_CHECK(Load(static_cast<const direct_channel::ProducerPage*>(hostile_->other())->progress.head,
                  std::memory_order_relaxed) == head_);
    return sent;
  }

  void Scribble(Input& input) {
    const uint64_t at = input.Take<uint16_t>() % sizeof(direct_channel::ConsumerPage);
    const std::string_view with = input.TakeBytes(input.Take<uint8_t>());
    std::memcpy(reinterpret_cast<char*>(&page()) + at, with.data(),
                std::min(with.size(), sizeof(direct_channel::ConsumerPage) - at));
    TellTaken(Load(page().progress.taken, std::memory_order_relaxed));
  }

  void TellTaken(uint64_t taken) {
    Store(page().progress.taken, taken, std::memory_order_release);
    taken_most_ = std::max(taken_most_, taken);
  }

  // Takes an entry and releases it, as an honest receiver does. `forwards`: in the meantime it publishes it once more.
  void Take(bool forwards) {
    const uint64_t taken = Load(page().progress.taken, std::memory_order_relaxed);
    if (taken >= head_ || head_ - taken > capacity_) return;
    // The bytes of an entry that it claimed to have taken before may have been reused.
    if (forwards && (revoked_ || taken < taken_most_)) return;
    const auto& sent = *static_cast<const direct_channel::ProducerPage*>(hostile_->other());
    direct_channel::Entry entry;
    const auto slots = direct_channel::SlotsOf(sent, capacity_);
    AB_CHECK(spsc::CopyEntry<direct_channel::Format>(slots, taken, entry) != 0);
    const direct_channel::Header header = direct_channel::HeaderOf(entry);
    AB_CHECK(header.bit < direct_channel::kReturnBits);
    AB_CHECK(header.arena == 1 && header.generation == 7);
    if (forwards) {
      const auto its = std::ranges::find(sendings_, std::optional(taken), &Sending::index);
      AB_CHECK(its != sendings_.end() && !its->carved_again);
      its->kept = header.bit;
      direct_->Keep(header.bit, true);
    }
    TellTaken(taken + 1);
    direct_channel::Return(page(), header.bit);
  }

  // The shares that use ranges are gone.
  void Forgo() {
    for (Sending& each : sendings_) {
      if (each.kept) direct_->Keep(*each.kept, false);
      each.kept.reset();
    }
  }

  void End(Input& input) {
    const int how = input.Take<uint8_t>() % 4;
    if (how == 1) return Take(true);
    if (how == 2) return Forgo();
    if (how == 3) return;
    Revoke();
    if (input.Take<uint8_t>() % 2 == 0) direct_->MarkGone();
  }

  void Wait() {
    const Lifeline::Interrupted never;
    const DirectWait how{session_->lifeline(), std::chrono::steady_clock::now(), {}, never};
    const Status waited = sent_.AwaitFreeSlot(how);
    AB_CHECK(waited.ok() || waited.code() == Code::kDeadlineExceeded);
  }

  // Ends the direct channel as Verbs::EndDirectChannel does. The entries that it takes are in the channel's queue from
  // now on.
  void Revoke() {
    if (revoked_) return;
    uint64_t entries = 0;
    const auto take = [&](const direct_channel::Entry& entry, uint64_t /*number*/) {
      AB_CHECK(++entries <= capacity_);
      const direct_channel::Header header = direct_channel::HeaderOf(entry);
      const uint64_t index = std::stoull(std::string(direct_channel::DescriptionOf(entry)));
      const auto its = std::ranges::find(sendings_, std::optional(index), &Sending::index);
      AB_CHECK(its != sendings_.end() && its->offset == header.offset && its->size == header.size);
      AB_CHECK(!its->carved_again);  // its receiver would see the new bytes
      its->queued = true;
      // A receiver that takes back what it has taken and forwarded gets it once more: its own forward then keeps
      // nothing.
      its->kept.reset();
      return true;
    };
    direct_->Revoke(take, [](bool, uint64_t) {});
    revoked_ = true;
  }

  // The broker releases the queued entries and reports it in an answer.
  void Return() {
    for (Sending& each : sendings_) {
      if (!each.queued) continue;
      each.queued = false;
      const wire::Range returned{1, each.offset, each.size};
      session_->written().Return({&returned, 1});
    }
  }

  QuietSession& session_;
  const uint64_t capacity_;
  const std::unique_ptr<DirectChannel> direct_;
  DirectProducer sent_;
  const std::unique_ptr<DirectPages> hostile_;
  std::shared_ptr<WrittenArena> arena_;
  std::vector<Sending> sendings_;
  uint64_t size_ = 1;  // granules of the next allocation
  uint64_t head_ = 0;
  uint64_t taken_most_ = 0;  // highest count that the receiver has claimed
  bool revoked_ = false;
};

}  // namespace
}  // namespace arraybridge::daemon

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arraybridge;
  using namespace arraybridge::daemon;
  static QuietSession* const session = new QuietSession;
  Input input(data, size);
  Stream stream(*session, input.Take<uint8_t>() % 8 + 1);
  for (size_t step = 0; step < kStepsMost && !input.empty(); ++step) stream.Step(input);
  return 0;
}
