// SPDX-License-Identifier: Apache-2.0
// A DirectChannel carries shares from the one sender of a channel to its one receiver without a call
// (proto/boundary/layouts/direct_channel.h). The producer writes a page of entries, the consumer a page that says what
// it took, and the broker a control block. Each end has a doorbell. A doorbell is a pipe. Unlike a socket, it carries
// no files that another process has to close. Each process has a description of its own, so no process can make
// another's write wait. The broker reads the pages when it revokes the direct channel, and believes neither end.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "daemon/memory/descriptor_store.h"
#include "daemon/memory/shared_pages/shared_pages.h"
#include "proto/boundary/layouts/direct_channel.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

enum class DirectEnd : uint8_t { kProducer, kConsumer };

// Thread-safe.
class DirectChannel {
 public:
  struct Doorbell {
    UniqueFd read;
    UniqueFd written;
  };
  // RESOURCE_EXHAUSTED: no descriptor, no memory. REQUIRES: capacity is 1 to direct_channel::kCapacityMax; no other
  // direct channel has had this number, which is not 0.
  // `for_next_daemon`: another one can adopt it.
  static Result<std::unique_ptr<DirectChannel>> Create(uint64_t capacity, uint64_t number,
                                                       bool for_next_daemon = false);
  // The direct channel that the previous daemon made at `born`, from the files of ExportForNextDaemon in any order.
  // FAILED_PRECONDITION: a file is missing or another's. If that daemon was revoking it, Revoke goes on.
  static Result<std::unique_ptr<DirectChannel>> Adopt(uint64_t capacity, uint64_t number,
                                                      std::chrono::steady_clock::time_point born,
                                                      std::vector<UniqueFd> files);
  ~DirectChannel() = default;

  uint64_t number() const { return control_.number; }
  uint64_t capacity() const { return capacity_; }
  std::chrono::steady_clock::time_point born() const { return born_; }

  // Descriptions for this end, in the order of direct_channel::File. FAILED_PRECONDITION: it is mapped, or has ended.
  Result<std::vector<UniqueFd>> Export(DirectEnd side) const AB_EXCLUDES(mutex_);
  // The pages of the producer, the consumer and the broker, and the pipes that wake the producer and the consumer.
  // Their sizes and the ways in which they are open tell them apart.
  enum Stored : size_t { kProducerPage, kConsumerPage, kControlBlock, kWakesProducer, kWakesConsumer, kStored };
  // REQUIRES: made for the next daemon.
  Result<std::vector<UniqueFd>> ExportForNextDaemon() const AB_EXCLUDES(mutex_);
  // This end has mapped all of it: from now on no other process can map its page writable. Idempotent.
  Status Seal(DirectEnd side) AB_EXCLUDES(mutex_);
  // Both ends have.
  bool sealed() const { return seals_.load(std::memory_order_acquire) == kBoth; }

  // From now on shares travel here; the consumer receives `calls` shares by calls before. The sequence of entry n is
  // `sequence` + n and the calls before it; all are of this stream. REQUIRES: sealed; one thread at a time, with
  // AddCall.
  void Open(uint64_t calls, uint64_t sequence, uint64_t stream);
  bool opened() const { return Load(control_.opened, std::memory_order_relaxed) != 0; }
  // A daemon has begun to revoke it, or has done so.
  bool revoking() const { return Load(control_.revoked, std::memory_order_relaxed) != direct_channel::kStands; }
  bool revoked() const { return Load(control_.revoked, std::memory_order_relaxed) == direct_channel::kRevoked; }
  // After Adopt, if it is open: at least so many shares go by calls. Wakes the consumer. REQUIRES: as AddCall.
  void RestoreCalls(uint64_t calls);
  // One more share goes by a call; wakes the consumer. REQUIRES: no entry stands here, or the order is lost.
  void AddCall();
  struct Counted {
    uint64_t sent = 0;
    uint64_t taken = 0;
  };
  // Entries, as the ends say now; 0 if their counts are impossible.
  Counted counted() const;
  // Entries that were not taken.
  uint64_t standing() const {
    const Counted now = counted();
    return now.sent - now.taken;
  }
  // The sequence of entry `entry`, from 1. REQUIRES: one thread at a time, with AddCall.
  uint64_t SequenceOf(uint64_t entry) const;

  // `number`: of the entry, from 1. False: it could not be published.
  using Take = std::function<bool(const direct_channel::Entry& entry, uint64_t number)>;
  // `complete`: every entry that was sent was published, or `taken` by the consumer: so many were.
  using Ended = std::function<void(bool complete, uint64_t taken)>;
  // Revokes it: passes the entries that were not taken to `take`, in order, then runs `ended`, then says in the control
  // block what counted, and wakes both ends. Malformed entries are left out. When this returns the direct channel has
  // ended, on this thread or another one. Neither function may revoke it.
  void Revoke(const Take& take, const Ended& ended) AB_EXCLUDES(mutex_);
  // The consumer's session has ended: the producer may use all ranges again that the consumer received.
  void MarkGone();
  bool gone() const { return Load(control_.gone, std::memory_order_relaxed) != 0; }
  // Shares use the range with this return bit, or no share does any more. The producer reads it before it uses a range
  // again. REQUIRES: bit < direct_channel::kReturnBits; one thread at a time.
  void Keep(uint64_t bit, bool kept);

  StoreGuard stored;  // keeps it for the next daemon

 private:
  static constexpr unsigned kBoth = 3;

  DirectChannel(std::unique_ptr<SharedPages> producer, std::unique_ptr<SharedPages> consumer,
                std::unique_ptr<SharedPages> control, Doorbell producer_doorbell, Doorbell consumer_doorbell,
                std::chrono::steady_clock::time_point born = std::chrono::steady_clock::now());
  bool CanBe(uint64_t head, uint64_t taken) const;
  bool TakeAll(const Take& take, uint64_t* head, uint64_t* taken) AB_REQUIRES(mutex_);

  mutable Mutex mutex_;
  const std::unique_ptr<SharedPages> producer_pages_;
  const std::unique_ptr<SharedPages> consumer_pages_;
  const std::unique_ptr<SharedPages> control_pages_;
  const direct_channel::ProducerPage& producer_;
  const direct_channel::ConsumerPage& consumer_;
  direct_channel::ControlBlock& control_;
  const uint64_t capacity_;
  const std::chrono::steady_clock::time_point born_;
  std::atomic<unsigned> seals_{0};  // a bit for each end
  bool ended_ AB_GUARDED_BY(mutex_) = false;
  const Doorbell producer_doorbell_;  // that the producer reads
  const Doorbell consumer_doorbell_;
};

}  // namespace arraybridge::daemon
