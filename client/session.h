// A Session is one connection to one life of the broker, and everything granted on it: the arenas it writes, the arenas
// it reads, its leases. It lives while somebody needs one of them; a new connection is a new Session.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <arraybridge/broker.h>

#include "client/arena_cache.h"
#include "client/codec.h"
#include "client/direct_producers.h"
#include "client/fences.h"
#include "client/holds.h"
#include "client/lifeline.h"
#include "client/memory/mapper_table.h"
#include "client/outcomes.h"
#include "client/reaper.h"
#include "client/share_cache.h"
#include "client/unwaited_publishes.h"

namespace arraybridge {

class DirectConsumer;
class WrittenArenas;

// Thread-safe.
class Session : public std::enable_shared_from_this<Session> {
 public:
  // UNAVAILABLE: nobody answers. FAILED_PRECONDITION: no protocol in common.
  static Result<std::shared_ptr<Session>> Open(const Broker::Options& options, std::shared_ptr<Reaper> reaper,
                                               std::shared_ptr<const MapperTable> mappers,
                                               std::shared_ptr<LateErrors> late_errors,
                                               std::shared_ptr<Outcomes> outcomes, Deadline deadline);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Lifeline& lifeline() { return *lifeline_; }
  Reaper& reaper() { return *reaper_; }
  const MapperTable& mappers() const { return *mappers_; }
  WrittenArenas& written() { return *written_; }
  ArenaCache& read() { return read_; }
  ShareCache& known() { return known_; }
  Holds& holds() { return holds_; }
  UnwaitedPublishes& unwaited() { return unwaited_; }
  const UnwaitedPublishes& unwaited() const { return unwaited_; }
  DirectProducers& direct_producers() { return direct_producers_; }
  // Carves anew what receivers have read without telling the broker.
  void PollDirectChannels();
  Fences& fences() { return fences_; }
  Outcomes& outcomes() { return *outcomes_; }
  // Whether this process waits for events of others: until one could not be opened, then only for bytes that are there.
  bool opens_events() const { return opens_events_.load(std::memory_order_relaxed); }
  void OpenNoEvents() { opens_events_.store(false, std::memory_order_relaxed); }
  // What GPUs this process sees, if the session was opened before it used one: the broker offers no memory of others
  // from then on. To be called where a GPU has just been used; waits for nothing.
  void SayGpus();
  // As much of it as the broker takes, in whole characters. What is longer than a note may be is refused there.
  std::string_view NoteFor(std::string_view note) const;
  const codec::Server& server() const { return server_; }
  // Leases that were not given back yet.
  uint64_t leases() const { return leases_.load(std::memory_order_relaxed); }
  std::chrono::milliseconds arena_idle() const { return arena_idle_; }

  // Lifeline::Call; and if the broker wants memory back, the reaper looks for some.
  Result<Answer> Call(Verb verb, std::string_view payload, Deadline deadline, const Lifeline::Late& late = {});
  // Without waiting. What a busy broker does not take is said with the next one.
  void Post(codec::Release release);
  // Tells what is given back, and learns which ranges the broker let go of.
  Status Sync(codec::Release release, Deadline deadline);
  // Waits, until the deadline, for what is published and not yet there, and tells the broker of all that has come.
  Status SyncFences(Deadline deadline);
  // Unmaps what nobody has used since `before`.
  codec::Release TakeUnused(std::chrono::steady_clock::time_point before);
  // Of which nobody can tell whether the device is done with it: `memory` stays as it is for as long as the session.
  // Bytes that may still be used are nobody else's.
  void KeepUndrained(std::shared_ptr<const void> memory);

 private:
  Session(const Broker::Options& options, std::shared_ptr<Lifeline> lifeline, codec::Server server,
          std::shared_ptr<Reaper> reaper, std::shared_ptr<const MapperTable> mappers,
          std::shared_ptr<LateErrors> late_errors, std::shared_ptr<Outcomes> outcomes);

  codec::Release WithUnsent(codec::Release release);
  Status Say(const codec::Release& message);
  void Hear(const codec::Release& told, std::string_view answer);

  const std::shared_ptr<Reaper> reaper_;
  const std::shared_ptr<const MapperTable> mappers_;
  const codec::Server server_;
  const std::shared_ptr<Outcomes> outcomes_;
  const std::chrono::milliseconds arena_idle_;
  // The connection ends before the mappings go, so nothing is given back twice.
  const std::unique_ptr<WrittenArenas> written_;
  ArenaCache read_;
  ShareCache known_;
  Holds holds_;
  UnwaitedPublishes unwaited_;
  DirectProducers direct_producers_;
  Fences fences_;
  std::atomic<bool> opens_events_{true};
  std::atomic<bool> gpus_said_{false};
  friend class Lease;
  std::atomic<uint64_t> leases_{0};
  Mutex mutex_;
  codec::Release unsent_ AB_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const void>> undrained_ AB_GUARDED_BY(mutex_);
  const std::shared_ptr<Lifeline> lifeline_;
};

// Remains that are given back on the connection they came from.
class SessionRemains : public Remains {
 public:
  explicit SessionRemains(std::shared_ptr<Session> of) : session(std::move(of)) {}
  // Adds what the broker must be told.
  virtual void GiveBack(codec::Release& release) = 0;
  Moment::State LookAtDevice() final;

  const std::shared_ptr<Session> session;

 protected:
  // Where the work lies that it waits for. REQUIRES: Waits().
  virtual Mapping& Waited() = 0;
  // What was waited for is not known to have ended: the bytes must not be given back.
  bool undrained() const { return undrained_; }

 private:
  std::shared_ptr<Moment> moment_;
  bool undrained_ = false;
};

// A lease of one share, a hold on it, or its return bit in a direct channel, and the memory in which it lies.
class Lease final : public SessionRemains {
 public:
  Lease(std::shared_ptr<Session> of, uint64_t lease);
  Lease(std::shared_ptr<Session> of, Hold held);
  Lease(std::shared_ptr<Session> of, std::shared_ptr<DirectConsumer> direct, uint64_t bit);
  ~Lease() override;
  // A hold or a slot costs no message: it ends where the last array goes, if there is nothing to unmap and nobody to
  // tell.
  bool EndAtOnce() noexcept override;
  bool Waits() const override { return arena && arena->handle.device.type != kDeviceCpu; }
  void GiveBack(codec::Release& release) override;
  Mapping& Waited() override { return *arena->shared; }

  const uint64_t id;  // 0: it is a hold, or a slot
  std::shared_ptr<ReadArena> arena;
  bool unmapped = false;  // the share's arena could not be mapped: told after the lease
  uint64_t arena_id = 0;
  uint64_t arena_generation = 0;
  uint64_t offset = 0;                       // of the share, in the arena
  uint64_t size = 0;                         // of the share
  std::unique_ptr<Mapping> private_mapping;  // copy-on-write, of the share alone

 private:
  Hold hold_;
  const std::shared_ptr<DirectConsumer> direct_;
  const uint64_t bit_ = 0;
  bool withdrawn_ = false;  // the hold has ended, and the broker waits for that
};

// A copy-on-write mapping of one share for one consumer, beside the mapping that its lease has.
class PrivateRange final : public SessionRemains {
 public:
  PrivateRange(std::shared_ptr<const Lease> of, std::unique_ptr<Mapping> range);
  ~PrivateRange() override;
  void GiveBack(codec::Release& release) override;
  Mapping& Waited() override { return *range_; }

 private:
  std::shared_ptr<const Lease> lease_;
  std::unique_ptr<Mapping> range_;
};

// What a Reaper of sessions does with what was dropped: one message for each connection.
void BurySessionRemains(Reaper::Batch batch);

}  // namespace arraybridge
