// SPDX-License-Identifier: Apache-2.0
// A DirectConsumer is the consuming end of a direct channel: it takes entries in order, and returns the range of each
// when its arrays have gone.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "client/catalogue/share_cache.h"
#include "client/direct_channels/direct_pages.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class DirectConsumer {
 public:
  explicit DirectConsumer(std::unique_ptr<DirectPages> pages, Sender sender = {})
      : pages_(std::move(pages)),
        sender_(std::make_shared<const Sender>(std::move(sender))),
        page_(*static_cast<direct_channel::ConsumerPage*>(pages_->own())),
        reader_(page_.progress, producer_page().progress,
                direct_channel::SlotsOf(producer_page(), pages_->capacity())) {}

  bool opened() const { return pages_->opened(); }
  bool stands() const { return pages_->stands(); }
  // Shares that come by calls, before the entries that stand here.
  uint64_t calls() const { return Load(pages_->control().calls, std::memory_order_acquire); }
  // So many came. The producer may have more room.
  void NoteCalls(uint64_t received) AB_EXCLUDES(mutex_);

  // kByCalls: shares come by calls first. kLacksArena: the entry is not taken, because nobody has called NoteArena with
  // its arena, or this process does not map that. kMalformed: no producer of ours wrote what stands there.
  enum class Outcome : uint8_t { kTaken, kEmpty, kByCalls, kLacksArena, kMalformed, kEnded };
  using MapsArena = std::function<bool(const direct_channel::Header&)>;
  // Copies the next entry into `entry`; its range is this caller's until Return. `received`: shares received by calls.
  // `maps`: whether this process maps the arena in which it lies. `sequence`: of the share in its channel.
  Outcome Take(Lifeline& lifeline, uint64_t received, const MapsArena& maps, direct_channel::Entry* entry,
               uint64_t* sequence) AB_EXCLUDES(mutex_);
  // The broker says that entries may lie in this arena. Otherwise a producer could name another producer's arena, which
  // this process reads, and FindAndHold would attribute the entry to the wrong channel.
  void NoteArena(uint64_t arena, uint64_t generation) AB_EXCLUDES(mutex_);
  Sent SentOf(const direct_channel::Entry& entry, uint64_t sequence) const {
    return {sequence, pages_->control().stream, direct_channel::HeaderOf(entry).time_ns, sender_};
  }
  // Waits until there may be an entry. `received`: as for Take.
  Status AwaitEntry(uint64_t received, const DirectWait& how) {
    return pages_->Wait([this, received] { return MayTake(received); }, how);
  }
  // The arrays of the entry with this bit have gone, or one of its forwards. On any thread, without a lock and without
  // a system call.
  void Return(uint64_t bit) noexcept { Release(bit, kArrays); }
  void ReleaseForward(uint64_t bit) noexcept { Release(bit, kForward); }

  // The broker's name for the direct channel.
  uint64_t number() const { return pages_->control().number; }
  // An entry that was taken and not returned.
  struct Held {
    uint64_t bit = 0;
    uint64_t offset = 0;
    uint64_t size = 0;
  };
  // An entry with arrays whose range contains these bytes. The caller is a forward of it, and calls ReleaseForward.
  std::optional<Held> FindAndHold(uint64_t arena, uint64_t offset, uint64_t bytes);

  // The last share, if it was described like this: the shares of a stream are alike. Null: it was not.
  std::shared_ptr<const KnownShare> Known(std::string_view description, uint64_t size) const AB_EXCLUDES(mutex_);
  void Remember(std::shared_ptr<const KnownShare> known) AB_EXCLUDES(mutex_);

 private:
  const direct_channel::ProducerPage& producer_page() const {
    return *static_cast<const direct_channel::ProducerPage*>(pages_->other());
  }
  struct Range {
    std::atomic<uint64_t> arena{0};
    std::atomic<uint64_t> offset{0};
    std::atomic<uint64_t> size{0};   // 0: returned
    std::atomic<uint32_t> users{0};  // kArrays, and kForward for each forward
  };

  static constexpr uint32_t kArrays = 1;
  static constexpr uint32_t kForward = 2;
  void Release(uint64_t bit, uint32_t user) noexcept {
    if (held_[bit].users.fetch_sub(user, std::memory_order_acq_rel) != user) return;
    held_[bit].size.store(0, std::memory_order_release);
    direct_channel::Return(page_, bit);
  }
  bool MayLieIn(uint64_t arena, uint64_t generation) const AB_REQUIRES(mutex_);
  void NoteHeld(const direct_channel::Header& header) AB_REQUIRES(mutex_);
  bool MayTake(uint64_t received) const { return reader_.HasEntry() || calls() > received || !pages_->stands(); }

  const std::unique_ptr<DirectPages> pages_;
  const std::shared_ptr<const Sender> sender_;
  direct_channel::ConsumerPage& page_;
  mutable Mutex mutex_;
  spsc::Reader<direct_channel::Format> reader_;  // under `mutex_`, but for HasEntry
  std::shared_ptr<const KnownShare> known_ AB_GUARDED_BY(mutex_);
  std::vector<std::pair<uint64_t, uint64_t>> arenas_ AB_GUARDED_BY(mutex_);  // that were noted, and their generations
  std::array<Range, direct_channel::kReturnBits> held_;                      // by return bit
  std::atomic<uint64_t> bits_{0};                                            // all held bits are below
};

}  // namespace arraybridge
