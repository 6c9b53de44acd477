// SPDX-License-Identifier: Apache-2.0
// A Session is one connection to one life of the broker, with everything granted on it: the arenas that it writes, the
// arenas that it reads, and its leases. It lives as long as one of them is in use. A new connection is a new Session.
//
// The Session makes its parts and gives access to them. Each part gets the parts that it uses in its constructor; none
// refers to the Session.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include <arraybridge/broker.h>

#include "client/arenas/arena.h"
#include "client/arenas/arena_cache.h"
#include "client/arenas/fences.h"
#include "client/arenas/release_queue.h"
#include "client/catalogue/hazard_tables.h"
#include "client/catalogue/share_cache.h"
#include "client/direct_channels/direct_consumers.h"
#include "client/direct_channels/direct_producers.h"
#include "client/lifeline/lifeline.h"
#include "client/lifeline/outcomes.h"
#include "client/memory/mapper_table.h"
#include "client/process/reclaimer.h"
#include "client/session/unwaited_publishes.h"
#include "client/wire/codec.h"

namespace arraybridge {

// Thread-safe.
class Session : public std::enable_shared_from_this<Session> {
 public:
  // The objects that all sessions of one Connection share.
  struct Shared {
    std::shared_ptr<Reclaimer> reclaimer;
    std::shared_ptr<const MapperTable> mappers;
    std::shared_ptr<DeferredErrors> deferred_errors = std::make_shared<DeferredErrors>();
    std::shared_ptr<Outcomes> outcomes = std::make_shared<Outcomes>();
  };
  // UNAVAILABLE: no broker answers. FAILED_PRECONDITION: client and broker have no protocol version in common.
  static Result<std::shared_ptr<Session>> Open(const Broker::Options& options, const Shared& shared, Deadline deadline);

  Lifeline& lifeline() { return *lifeline_; }
  Reclaimer& reclaimer() { return *shared_.reclaimer; }
  const MapperTable& mappers() const { return *shared_.mappers; }
  WrittenArenas& written() { return written_; }
  ArenaCache& read() { return read_; }
  ShareCache& known() { return known_; }
  ReleaseQueue& releases() { return releases_; }
  // A reference that keeps the session alive, for releases that are sent on it later.
  std::shared_ptr<ReleaseQueue> shared_releases() { return {shared_from_this(), &releases_}; }
  HazardTables& hazards() { return hazards_; }
  UnwaitedPublishes& unwaited() { return unwaited_; }
  const UnwaitedPublishes& unwaited() const { return unwaited_; }
  DirectProducers& direct_producers() { return direct_producers_; }
  DirectConsumers& direct_consumers() { return direct_consumers_; }
  Fences& fences() { return fences_; }
  Outcomes& outcomes() { return *shared_.outcomes; }
  const codec::Server& server() const { return server_; }

  // As Lifeline::Call. If the broker wants memory back, it also nudges the reclaimer.
  Result<Answer> Call(Verb verb, std::string_view payload, Deadline deadline,
                      const Lifeline::CompletionHandler& handler = {});
  // Frees the ranges whose receivers have finished reading without notifying the broker.
  void PollDirectChannels();
  // True if this process opens the events of other processes. Once an event could not be opened, the session asks for
  // finished bytes only.
  bool opens_events() const { return opens_events_.load(std::memory_order_relaxed); }
  void OpenNoEvents() { opens_events_.store(false, std::memory_order_relaxed); }
  // Reports this process's GPUs to the broker if the session was opened before a GPU was used. From then on the broker
  // offers no memory of other GPUs. To be called after the first use of a GPU. Never waits.
  void ReportGpus();
  // The note, cut at a character boundary to the broker's limit. The broker refuses a note above the API's limit.
  std::string_view NoteFor(std::string_view note) const;
  // How long unused arenas are kept.
  std::chrono::milliseconds arena_idle() const;
  // How long one request of a wait until then lasts: the broker limits it, and so does `most`.
  std::chrono::milliseconds SliceOf(std::optional<Deadline> until, std::chrono::milliseconds most) const;

 private:
  Session(const Broker::Options& options, const Shared& shared, std::shared_ptr<Lifeline> lifeline,
          codec::Server server);

  const Shared shared_;
  const codec::Server server_;
  // The connection ends before the mappings are removed, so that nothing is given back twice.
  WrittenArenas written_;
  ArenaCache read_;
  ShareCache known_;
  Fences fences_;
  ReleaseQueue releases_;
  HazardTables hazards_;
  UnwaitedPublishes unwaited_;
  DirectProducers direct_producers_;
  DirectConsumers direct_consumers_;
  std::atomic<bool> opens_events_{true};
  std::atomic<bool> gpus_reported_{false};
  // The last member, because its completion handlers use the members above.
  const std::shared_ptr<Lifeline> lifeline_;
};

}  // namespace arraybridge
