// A Session is one connection to one life of the broker, with everything granted on it: the arenas it writes, the
// arenas it reads, its leases. It lives as long as one of them is in use; a new connection is a new Session.
//
// It makes its parts and hands them out. Each part is given in its constructor the other parts that it uses; none knows
// the Session.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include <arraybridge/broker.h>

#include "client/arena.h"
#include "client/arena_cache.h"
#include "client/codec.h"
#include "client/fences.h"
#include "client/hazard_tables.h"
#include "client/lifeline.h"
#include "client/memory/mapper_table.h"
#include "client/outcomes.h"
#include "client/reclaimer.h"
#include "client/release_queue.h"
#include "client/roads.h"
#include "client/share_cache.h"
#include "client/unwaited_publishes.h"

namespace arraybridge {

// Thread-safe.
class Session : public std::enable_shared_from_this<Session> {
 public:
  // What all sessions of one Connection share.
  struct Shared {
    std::shared_ptr<Reclaimer> reclaimer;
    std::shared_ptr<const MapperTable> mappers;
    std::shared_ptr<DeferredErrors> deferred_errors = std::make_shared<DeferredErrors>();
    std::shared_ptr<Outcomes> outcomes = std::make_shared<Outcomes>();
  };
  // UNAVAILABLE: no broker answers. FAILED_PRECONDITION: no protocol in common.
  static Result<std::shared_ptr<Session>> Open(const Broker::Options& options, const Shared& shared, Deadline deadline);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Lifeline& lifeline() { return *lifeline_; }
  Reclaimer& reclaimer() { return *shared_.reclaimer; }
  const MapperTable& mappers() const { return *shared_.mappers; }
  WrittenArenas& written() { return written_; }
  ArenaCache& read() { return read_; }
  ShareCache& known() { return known_; }
  ReleaseQueue& releases() { return releases_; }
  // Keeps the session alive, for releases that are sent on it.
  std::shared_ptr<ReleaseQueue> shared_releases() { return {shared_from_this(), &releases_}; }
  HazardTables& hazards() { return hazards_; }
  UnwaitedPublishes& unwaited() { return unwaited_; }
  const UnwaitedPublishes& unwaited() const { return unwaited_; }
  Roads& roads() { return roads_; }
  Fences& fences() { return fences_; }
  Outcomes& outcomes() { return *shared_.outcomes; }
  const codec::Server& server() const { return server_; }

  // Lifeline::Call; and if the broker wants memory back, the reclaimer looks for some.
  Result<Answer> Call(Verb verb, std::string_view payload, Deadline deadline,
                      const Lifeline::CompletionHandler& handler = {});
  // Carves anew the ranges that receivers have read without telling the broker.
  void LookAtRoads();
  // Whether this process waits for events of others: until one could not be opened; then only for finished bytes.
  bool opens_events() const { return opens_events_.load(std::memory_order_relaxed); }
  void OpenNoEvents() { opens_events_.store(false, std::memory_order_relaxed); }
  // Tells the broker which GPUs this process sees, if the session was opened before it used one: the broker offers no
  // memory of other GPUs from then on. To be called where a GPU has just been used; waits for nothing.
  void SayGpus();
  // As much of the note as the broker takes, in whole characters. The broker refuses one longer than any note may be.
  std::string_view NoteFor(std::string_view note) const;
  // How long unused arenas are kept.
  std::chrono::milliseconds arena_idle() const;

 private:
  Session(const Broker::Options& options, const Shared& shared, std::shared_ptr<Lifeline> lifeline,
          codec::Server server);

  const Shared shared_;
  const codec::Server server_;
  // The connection ends before the mappings go, so nothing is given back twice.
  WrittenArenas written_;
  ArenaCache read_;
  ShareCache known_;
  Fences fences_;
  ReleaseQueue releases_;
  HazardTables hazards_;
  UnwaitedPublishes unwaited_;
  Roads roads_;
  std::atomic<bool> opens_events_{true};
  std::atomic<bool> gpus_said_{false};
  // Last: completion handlers that wait in it use the parts above.
  const std::shared_ptr<Lifeline> lifeline_;
};

}  // namespace arraybridge
