// SPDX-License-Identifier: Apache-2.0
// The page of a hostile sender, before and while a client receives from it and the broker ends the direct channel. For
// any content of the page, each received array lies in the range of its entry, inside an arena that the client maps; no
// entry is taken that does not exist, and nothing remains after all arrays are dropped.
//
// An input is the direct channel's capacity, then steps: a byte for the kind of step, and its operands.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/direct_channels/direct_consumer.h"
#include "client/shares/acquire.h"
#include "daemon/memory/host/host_backend.h"
#include "tests/fuzz/input.h"
#include "tests/unit/boundary/direct_entries.h"
#include "tests/unit/client/mapped_direct.h"
#include "tests/unit/client/quiet_session.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kArenaBytes = 1 << 16;
constexpr uint64_t kArena = 1;
constexpr uint64_t kGeneration = 7;
constexpr size_t kStepsMost = 64;
constexpr uint64_t kCopyBytesMost = 1 << 16;

// The state that all inputs share: a session that maps one arena.
struct Client {
  QuietSession session;
  std::unique_ptr<MemoryBackend> backend = MakeHostBackend({kArenaBytes * 2, false});
  std::unique_ptr<MemoryBlock> block;
  std::shared_ptr<ReadArena> arena = std::make_shared<ReadArena>();

  Client() {
    auto allocated = backend->Allocate(Device{}, kArenaBytes);
    AB_CHECK(allocated.ok());
    block = *std::move(allocated);
    AB_CHECK(block->Seal().ok());
    auto handle = block->Export(Access::kRead);
    const auto mapper = session->mappers().Of(HandleKind::kMemfd);
    AB_CHECK(handle.ok() && mapper.ok());
    arena->handle = *std::move(handle);
    arena->handle.arena = kArena;
    arena->handle.generation = kGeneration;
    arena->handle.size = arena->handle.arena_size = kArenaBytes;
    auto mapping = (*mapper)->Map(arena->handle, arena->handle.device, Access::kRead);
    AB_CHECK(mapping.ok());
    arena->shared = *std::move(mapping);
    arena->mapper = *mapper;
    AB_CHECK(session->read().Add(arena) == arena);
  }
};

// Returns mostly small numbers, because all large ones are refused for the same reason.
uint64_t TakeNumber(Input& input) {
  const auto small = input.Take<uint8_t>();
  if (small < 128) return small;
  if (small < 192) return uint64_t{small} << 8;
  return input.Take<uint64_t>();
}

// The range of bytes, relative to the first element, that the elements reach; computed independently of the
// implementation.
struct Reach {
  __int128 first = 0;
  __int128 last = 0;  // end of the last element
};
Reach ReachOf(const View& view) {
  const auto bits = static_cast<__int128>(view.type.bits) * view.type.lanes;
  if (view.compact()) return {0, (static_cast<__int128>(view.elements()) * bits + 7) / 8};
  Reach reach;
  for (size_t i = 0; i < view.shape.size(); ++i) {
    const __int128 way = static_cast<__int128>(view.shape[i] - 1) * view.strides[i] * (bits / 8);
    (way < 0 ? reach.first : reach.last) += way;
  }
  reach.last += bits / 8;
  return reach;
}

class Stream {
 public:
  Stream(Client& client, uint64_t capacity)
      : client_(client),
        capacity_(capacity),
        direct_(*DirectChannel::Create(capacity, 1)),
        hostile_(MapDirect(*direct_, DirectEnd::kProducer)),
        taken_(std::make_shared<DirectConsumer>(MapDirect(*direct_, DirectEnd::kConsumer))) {
    direct_->Open(0, 0, 1);
    taken_->NoteArena(kArena, kGeneration);
  }
  ~Stream() {
    Revoke();
    AB_CHECK(direct_->standing() <= capacity_);
    while (!forwards_.empty()) Forget(0);
    kept_.clear();
    client_.session.Settle();
    AB_CHECK(client_.session->releases().leases() == 0);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void Step(Input& input) {
    switch (input.Take<uint8_t>() % 12) {
      case 0:
        return Say(input);
      case 1:
        return Scribble(input);
      case 2:
        return Store(page().progress.head, Load(page().progress.head, std::memory_order_relaxed) + TakeNumber(input),
                     std::memory_order_release);
      case 3:
      case 4:
      case 5:
        return Take(input);
      case 6:
        if (!kept_.empty()) kept_.erase(kept_.begin() + input.Take<uint8_t>() % static_cast<int>(kept_.size()));
        return;
      case 7:
        if (!revoked_) direct_->AddCall();
        return;
      case 8:
        return taken_->NoteCalls(received_ += input.Take<uint8_t>());
      case 9:
        return Forward(input);
      case 10:
        if (!forwards_.empty()) Forget(input.Take<uint8_t>() % forwards_.size());
        return;
      default:
        if (input.Take<uint8_t>() % 8 == 0) Revoke();
        Wait();
    }
  }

 private:
  direct_channel::ProducerPage& page() { return *static_cast<direct_channel::ProducerPage*>(hostile_->own()); }

  // Writes an entry in the form of a client, with any values.
  void Say(Input& input) {
    direct_channel::Header said;
    const uint64_t arena = TakeNumber(input);
    said.arena = arena == 0 ? kArena : arena;
    const uint64_t generation = TakeNumber(input);
    said.generation = generation == 0 ? kGeneration : generation;
    said.offset = TakeNumber(input);
    said.size = TakeNumber(input);
    said.bit = TakeNumber(input);
    const std::string_view description =
        input.TakeBytes(input.Take<uint8_t>()).substr(0, direct_channel::Format::kDescriptionBytesMax);
    direct_channel::WriteEntry(page(), capacity_, said, description);
  }

  void Scribble(Input& input) {
    const uint64_t bytes = direct_channel::BytesOfProducerPage(capacity_);
    const uint64_t at = input.Take<uint16_t>() % bytes;
    const std::string_view with = input.TakeBytes(input.Take<uint8_t>());
    std::memcpy(reinterpret_cast<char*>(&page()) + at, with.data(), std::min<uint64_t>(with.size(), bytes - at));
  }

  void Take(Input& input) {
    const auto how = input.Take<uint8_t>();
    const bool revoked_before = revoked_;
    if (head_ == taken_count_ && !revoked_) head_ = Load(page().progress.head, std::memory_order_relaxed);
    std::shared_ptr<ReadArena> arena;
    direct_channel::Entry entry;
    const auto maps = [&](const direct_channel::Header& of) {
      arena = client_.session->read().Find(of.arena, of.generation);
      // The entry has been read; later changes have no effect.
      if ((how & 1) != 0) Scribble(input);
      if ((how & 2) != 0) Revoke();
      return arena != nullptr;
    };
    uint64_t sequence = 0;
    const auto outcome = taken_->Take(client_.session->lifeline(), received_, maps, &entry, &sequence);
    const bool ended = outcome == DirectConsumer::Outcome::kEnded;
    const bool taken = outcome == DirectConsumer::Outcome::kTaken;
    AB_CHECK(ended || !revoked_before);
    AB_CHECK(revoked_ || !ended);
    AB_CHECK(!(taken && revoked_ && queued_ > 0));  // otherwise it would be received twice
    if (!taken) return;
    AB_CHECK(head_ != taken_count_);
    AB_CHECK(++taken_count_ == Load(static_cast<const direct_channel::ConsumerPage*>(hostile_->other())->progress.taken,
                                    std::memory_order_relaxed));
    const direct_channel::Header header = direct_channel::HeaderOf(entry);
    AB_CHECK(arena != nullptr && header.bit < direct_channel::kReturnBits);
    const auto mode = (how & 4) != 0 ? MapMode::kPrivate : MapMode::kShared;
    auto acquired = TakeSent(*client_.session, taken_, entry, std::move(arena), "default", "c", mode);
    if (!acquired.ok()) return;
    Question(*acquired, header, mode);
    kept_.push_back(*std::move(acquired));
  }

  // Finds an entry with these bytes, as a process does that sends them on.
  void Forward(Input& input) {
    const uint64_t offset = TakeNumber(input);
    const uint64_t bytes = TakeNumber(input);
    const auto held = taken_->FindAndHold(kArena, offset, bytes);
    if (!held) return;
    AB_CHECK(held->offset <= offset && offset + bytes <= held->offset + held->size);
    forwards_.push_back({held->bit, ReturnOf(held->bit)});
  }

  void Forget(size_t number) {
    const Forwarded its = forwards_[number];
    AB_CHECK(ReturnOf(its.bit) == its.returned);  // its producer does not use the range again
    forwards_.erase(forwards_.begin() + static_cast<std::ptrdiff_t>(number));
    taken_->ReleaseForward(its.bit);
  }

  bool ReturnOf(uint64_t bit) const {
    const auto& page = *static_cast<const direct_channel::ConsumerPage*>(hostile_->other());
    return (Load(page.returned[bit / 64], std::memory_order_relaxed) >> bit % 64 & 1) != 0;
  }

  void Question(const Acquired& acquired, const direct_channel::Header& entry, MapMode mode) const {
    AB_CHECK(acquired.share->size == entry.size && acquired.views.size() == acquired.share->arrays.size());
    AB_CHECK(entry.offset <= kArenaBytes && entry.size <= kArenaBytes - entry.offset);
    for (size_t i = 0; i < acquired.views.size(); ++i) {
      const View& view = acquired.views[i];
      AB_CHECK((view.data == nullptr) == (view.elements() == 0));
      AB_CHECK(view.read_only == (mode == MapMode::kShared));
      if (view.data == nullptr) continue;
      const uint64_t offset = acquired.share->arrays[i].offset;
      const Reach reach = ReachOf(view);
      AB_CHECK(offset + reach.first >= 0 && offset + reach.last <= static_cast<__int128>(entry.size));
      const std::byte* const range = client_.arena->shared->data() + entry.offset;
      AB_CHECK(mode == MapMode::kPrivate || view.data == range + offset);
      if (!view.compact() || view.nbytes() > kCopyBytesMost) continue;
      std::string copy(view.nbytes(), '\0');
      CopyCompact(view, copy.data());
    }
  }

  void Wait() {
    const Lifeline::Interrupted never;
    const DirectWait how{client_.session->lifeline(), std::chrono::steady_clock::now(), {}, never};
    const Status waited = taken_->AwaitEntry(received_, how);
    AB_CHECK(waited.ok() || waited.code() == Code::kDeadlineExceeded);
  }

  // Ends the direct channel as Verbs::EndDirectChannel does: takes each entry once, and no more than the channel's
  // capacity.
  void Revoke() {
    const auto take = [&](const direct_channel::Entry& entry, uint64_t /*number*/) {
      const direct_channel::Header header = direct_channel::HeaderOf(entry);
      AB_CHECK(header.description_bytes <= direct_channel::Format::kDescriptionBytesMax);
      AB_CHECK(header.bit < direct_channel::kReturnBits);
      AB_CHECK(++queued_ <= capacity_);
      return true;
    };
    bool told = false;
    direct_->Revoke(take, [&](bool, uint64_t) { told = true; });
    AB_CHECK(told == !revoked_);
    revoked_ = true;
    if (!told) return;
    const direct_channel::ControlBlock& control = hostile_->control();
    AB_CHECK(Load(control.revoked, std::memory_order_relaxed) == direct_channel::kRevoked);
    // The number of entries received on the direct channel or, if the page is malformed, all entries that counted.
    AB_CHECK(control.taken == std::max(taken_count_, Load(page().seen, std::memory_order_relaxed)) ||
             control.taken == control.counted);
    AB_CHECK(queued_ <= control.counted - control.taken);
  }

  Client& client_;
  const uint64_t capacity_;
  const std::unique_ptr<DirectChannel> direct_;
  const std::unique_ptr<DirectPages> hostile_;
  const std::shared_ptr<DirectConsumer> taken_;
  std::vector<Acquired> kept_;
  struct Forwarded {
    uint64_t bit = 0;
    bool returned = false;  // the bit, when it was held
  };
  std::vector<Forwarded> forwards_;
  uint64_t taken_count_ = 0;  // as an honest consumer counts
  uint64_t head_ = 0;         // as an honest consumer loaded it last
  uint64_t received_ = 0;
  uint64_t queued_ = 0;  // entries that the broker has queued
  bool revoked_ = false;
};

}  // namespace
}  // namespace arraybridge::daemon

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arraybridge;
  using namespace arraybridge::daemon;
  static Client* const client = new Client;
  Input input(data, size);
  Stream stream(*client, input.Take<uint8_t>() % 8 + 1);
  for (size_t step = 0; step < kStepsMost && !input.empty(); ++step) stream.Step(input);
  return 0;
}
