// SPDX-License-Identifier: Apache-2.0
// Arenas holds all arenas that sessions can name, and the dying ones. An arena is destroyed once no process has it
// mapped. The table counts allocated and freed bytes by device and memory kind.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/broker/ledger/counter.h"
#include "daemon/broker/ledger/flags.h"
#include "daemon/broker/ledger/flows.h"
#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/ledger/snapshot.h"
#include "daemon/broker/objects/arena.h"
#include "daemon/broker/objects/calls.h"
#include "daemon/broker/objects/holders.h"
#include "daemon/broker/tables/backends.h"
#include "daemon/broker/tables/journal.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

struct Session;

Status NoArena(ArenaId arena);

// Not thread-safe: the broker's lock guards it.
class Arenas {
 public:
  // All arguments outlive the table.
  Arenas(const Backends& backends, Flags& flags, Journal& journal)
      : flows(backends.all()), flags_(flags), journal_(journal) {}

  // Null: the arena does not exist, or the session has no right to this use.
  Arena* Find(ArenaId id) const;
  Arena* FindWritable(const Session& session, ArenaId id) const;
  Arena* FindReadable(const Session& session, ArenaId id) const;
  ArenaId NextId() { return ArenaId{ids.Next()}; }
  void Add(Session& maker, std::unique_ptr<Arena> arena);
  // An arena that the previous daemon had. `maker`: null if it is gone.
  void Restore(Session* maker, std::unique_ptr<Arena> arena);
  // The process that has continued a session has its arenas. Until then no living process is known to have them, so
  // they are freed as soon as they die: the driver keeps what another process still maps.
  void Continue(const Session& session);
  // All arenas that have neither a writer nor a share die.
  void RetireIdle();
  uint64_t size() const { return arenas_.size(); }

  // The session receives a read descriptor.
  void AddReader(Session& session, Arena& arena);
  // The session reports that it has dropped the mapping.
  void DropReader(Session& session, Arena& arena);
  // True if the session opens the handle again although it reported "unmapped": the client may have sent the report
  // before it read of a lease whose handle needs no descriptor.
  static bool WillMapAgain(const Session& session, Arena& arena);
  void AddHolder(const Arena& arena, const Session& session, Access access);
  void DropHolder(ArenaId arena, SessionId session, Access access);
  const std::unordered_map<ArenaId, Holders>& holders() const { return holders_; }

  // The writer gives the arena back: it is frozen from now on, or dies if it has no share.
  void GiveBack(Arena& arena);
  // The arena dies if it has neither a writer nor a share.
  void RetireIfIdle(Arena& arena);

  // No process can write the arena any more.
  static void MarkEnforced(Arena& arena);
  // Records the result of a sweep's seal. An arena whose seal is refused permanently stays by contract.
  void NoteSeal(ArenaId id, const Result<Immutability>& sealed, Clock::time_point now);

  // The arenas that ArenaSweep processes without the lock and then gives back.
  struct Swept {
    std::vector<std::unique_ptr<Arena>> dying;
    std::unordered_map<ArenaId, Holders> holders;  // of the dying arenas
    std::vector<std::pair<ArenaId, std::shared_ptr<MemoryBlock>>> unsealed;
  };
  Swept TakeForSweep(Clock::time_point now);
  // `taken`: the number of dying arenas that were taken. `dying`: those that are still dying.
  void PutBack(size_t taken, std::vector<std::unique_ptr<Arena>> dying);
  void Freed(ArenaId arena, uint32_t record) {
    holders_.erase(arena);
    journal_.Erase(record);
  }
  bool has_unfinished() const { return !dying_.empty() || !to_enforce_.empty(); }
  const std::vector<std::unique_ptr<Arena>>& dying() const { return dying_; }
  uint64_t dying_count() const { return dying_.size() + being_swept_; }

  Flows flows;
  Counter ids;
  // The cause of arenas' deaths while the lock is held; kRelease between verbs.
  FreeCause because = FreeCause::kRelease;

 private:
  // When the permanent seal of an arena is tried next: a refused seal can be slow.
  struct Enforcement {
    Clock::time_point due{};  // from the start
    std::chrono::milliseconds pause{50};
  };

  Flags& flags_;
  Journal& journal_;
  std::unordered_map<ArenaId, std::unique_ptr<Arena>> arenas_;
  std::vector<std::unique_ptr<Arena>> dying_;           // not named by a session; processes may have them mapped
  std::unordered_map<Arena*, Enforcement> to_enforce_;  // without a writer, not yet immutable for all processes
  std::unordered_map<ArenaId, Holders> holders_;  // of arenas whose block cannot track its holders, dying ones included
  uint64_t being_swept_ = 0;                      // dying arenas taken by a sweep
};

}  // namespace arraybridge::daemon
