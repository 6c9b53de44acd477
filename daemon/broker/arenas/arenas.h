// Arenas are all arenas that a session can name, and those that die: an arena is destroyed once no process has it
// mapped. They count what each kind of memory of each device gave and got back.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/broker/arenas/arena.h"
#include "daemon/broker/arenas/backends.h"
#include "daemon/broker/arenas/flows.h"
#include "daemon/broker/arenas/holders.h"
#include "daemon/broker/calls.h"
#include "daemon/broker/flags.h"
#include "daemon/broker/ids.h"
#include "daemon/broker/snapshot.h"
#include "proto/boundary/result.h"

namespace arraybridge {

struct Session;

Status NoArena(ArenaId arena);

// Not thread-safe: the broker's lock guards it.
class Arenas {
 public:
  // All outlive it.
  Arenas(const Backends& backends, Flags& flags) : flows(backends.all()), flags_(flags) {}

  // Null: it is not there, or the session may not use it so.
  Arena* Find(ArenaId id) const;
  Arena* FindWritable(const Session& session, ArenaId id) const;
  Arena* FindReadable(const Session& session, ArenaId id) const;
  ArenaId NextId() { return ArenaId{++last_}; }
  void Add(Session& maker, std::unique_ptr<Arena> arena);
  uint64_t size() const { return arenas_.size(); }

  // The session gets a read descriptor.
  void AddReader(Session& session, Arena& arena);
  // It says that it has dropped the mapping.
  void DropReader(Session& session, Arena& arena);
  // "Unmapped" may have been said before the client read of a lease whose handle needs no descriptor: it opens the
  // handle again.
  static bool WillMapAgain(const Session& session, Arena& arena);
  // Sessions that may have it mapped, where its block does not know them.
  void AddHolder(const Arena& arena, const Session& session, Access access);
  void DropHolder(ArenaId arena, SessionId session, Access access);
  const std::unordered_map<ArenaId, Holders>& holders() const { return holders_; }

  // The writer is done with it: it is frozen from now on, or dies if nothing is published in it.
  void GiveBack(Arena& arena);
  // It dies if it has neither a writer nor a share.
  void RetireIfIdle(Arena& arena);

  // No process can write it.
  static void MarkEnforced(Arena& arena);
  // What a seal that was tried by a sweep came to. One that is refused for good stays by contract.
  void NoteSeal(ArenaId id, const Result<Immutability>& sealed, Clock::time_point now);

  // For ArenaSweep: what it looks at without the lock, and gives back.
  struct Swept {
    std::vector<std::unique_ptr<Arena>> dying;
    std::unordered_map<ArenaId, Holders> holders;  // of these
    std::vector<std::pair<ArenaId, std::shared_ptr<MemoryBlock>>> unsealed;
  };
  Swept TakeForSweep(Clock::time_point now);
  // `taken`: how many were dying; `dying`: those that still are.
  void PutBack(size_t taken, std::vector<std::unique_ptr<Arena>> dying);
  void Freed(ArenaId arena) { holders_.erase(arena); }
  bool has_unfinished() const { return !dying_.empty() || !to_enforce_.empty(); }
  const std::vector<std::unique_ptr<Arena>>& dying() const { return dying_; }
  uint64_t dying_count() const { return dying_.size() + being_swept_; }

  Flows flows;
  // Why arenas go for as long as the lock is held; kRelease between verbs.
  FreeCause because = FreeCause::kRelease;

 private:
  // When the last seal of an arena is tried next: it can be slow where it is refused.
  struct Enforcement {
    Clock::time_point due{};  // from the start
    std::chrono::milliseconds pause{50};
  };

  Flags& flags_;
  std::unordered_map<ArenaId, std::unique_ptr<Arena>> arenas_;
  std::vector<std::unique_ptr<Arena>> dying_;           // no session names them; processes may have them mapped
  std::unordered_map<Arena*, Enforcement> to_enforce_;  // without a writer, not yet immutable for everybody
  std::unordered_map<ArenaId, Holders> holders_;        // of arenas whose block does not know them, dying ones too
  uint64_t being_swept_ = 0;                            // dying arenas that a sweep has taken
  uint64_t last_ = 0;
};

}  // namespace arraybridge
