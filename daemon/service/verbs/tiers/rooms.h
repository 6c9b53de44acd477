// SPDX-License-Identifier: Apache-2.0
// Rooms are the bytes of memory that refused requests want. Shares that no process reads make room: of the owner of the
// request's namespace alone, and of the namespace alone if it is its quota that is full.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/broker/verbs/tiers/tiers.h"
#include "daemon/moves/counted_mover.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Thread-safe, but one thread at a time calls Serve.
class Rooms {
 public:
  // `tiers` outlives it.
  explicit Rooms(const Tiers& tiers) : tiers_(tiers) {}

  // Does nothing if the refusal is not for lack of memory.
  void Want(uint32_t owner, std::string_view ns, uint64_t bytes, const Status& refusal) AB_EXCLUDES(mutex_);
  // Moves shares out, one for each room in turn. `freed`: called for each room that has got memory.
  void Serve(CountedMover& mover, const std::function<void()>& freed) AB_EXCLUDES(mutex_);
  // Moves out so many bytes of shares, each time one of the owner who has the most bytes that may leave. Ends early if
  // a room is wanted.
  void Level(CountedMover& mover, uint64_t bytes, const std::function<void()>& freed) AB_EXCLUDES(mutex_);

 private:
  // The first one to leave memory comes last.
  std::vector<Tiers::Candidate> VictimsOf(const NamespaceKey& of) const;

  const Tiers& tiers_;
  Mutex mutex_;
  // The bytes by owner and namespace; without a name: any namespace of the owner.
  std::map<std::pair<uint32_t, std::string>, uint64_t> wanted_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge::daemon
