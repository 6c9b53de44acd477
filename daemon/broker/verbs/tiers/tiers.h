// SPDX-License-Identifier: Apache-2.0
// Tiers are the broker's verbs on shares whose bytes move between memory and a file. A move has two halves, and its
// slow part between them, without the lock: Look and MoveOut, Reserve and MoveIn. The second half refuses if the share
// has changed meanwhile.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/broker/ledger/charge.h"
#include "daemon/broker/ledger/records.h"
#include "daemon/broker/objects/namespace.h"
#include "daemon/broker/objects/tiers/stored.h"
#include "daemon/memory/descriptor_store.h"
#include "daemon/memory/memory_backend.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

class Arena;
class Arenas;
class Namespaces;

// A share, whoever asks.
struct SharePlace {
  uint32_t owner = 0;  // of the namespace
  std::string ns;
  ShareId share{};
  friend auto operator<=>(const SharePlace&, const SharePlace&) = default;  // NOLINT(modernize-use-nullptr): its 0
};

// The facts about a share that its file states beside the bytes.
struct ShareLabel {
  std::shared_ptr<const ShareFacts> facts;
  uint32_t owner = 0;
  uint32_t maker_uid = 0;
  uint64_t size = 0;
  std::string note;
  Rank rank = {};
  std::chrono::system_clock::time_point expires{};  // when its lifetime ends; the epoch: never
};

// A named share and where its bytes are.
struct TieredRow {
  SharePlace place;
  ShareLabel label;
  Stored stored;
  bool in_memory = false;
};

// Thread-safe.
class Tiers {
 public:
  explicit Tiers(Broker& broker) : broker_(broker) {}

  // As Acquire and Withdraw find it. NOT_FOUND; PERMISSION_DENIED.
  Result<SharePlace> Find(SessionId session, std::string_view ns, const ShareKey& key, Right right) const;

  // The share, and if its bytes are in memory, the memory. NOT_FOUND: it has been withdrawn.
  struct Looked {
    TieredRow row;
    std::shared_ptr<MemoryBlock> block;  // null: the bytes are in a file alone
    uint64_t offset = 0;
    ArenaId arena{};          // of the block; bytes that leave memory never come back to it
    Status movable;           // for MoveOut
    bool is_complete = true;  // its bytes have been made
  };
  Result<Looked> Look(const SharePlace& place) const;
  // The file has the bytes: frees the memory. `from`: the place that they were read from. `fresh`: a new file, or
  // empty, for the share's own; a share that has one keeps it. FAILED_PRECONDITION, SHARE_IN_USE: a process reads the
  // share, or uses its bytes; or they have left `from` meanwhile, so that the file may have others.
  Status MoveOut(const SharePlace& place, ArenaId from, Stored fresh);
  // Lasts as long as the share; a durable file keeps the one that it was written with.
  Status SetRank(const SharePlace& place, Rank rank);
  // The file has the bytes, which stay in memory, too. Errors as of MoveOut if they have left `from` meanwhile.
  Status Keep(const SharePlace& place, ArenaId from, Stored file);

  // A share that may be moved out now, and when it was published, or a call has read it.
  struct Candidate {
    Rank rank;
    std::chrono::steady_clock::time_point read;
    uint64_t bytes = 0;
    SharePlace place;
  };
  // They are of the namespaces of one owner, so that nobody's wish for memory costs another user time; of one
  // namespace, unless its name is empty. Looks at a bounded number of shares after `after`, and sets it to the last
  // one; nothing: that was all.
  std::vector<Candidate> Candidates(const NamespaceKey& of, std::optional<SharePlace>* after) const;

  // The owners of namespaces.
  std::vector<uint32_t> Owners() const;
  struct HostBytes {
    uint64_t used = 0;  // without memory that is populated ahead of demand
    uint64_t capacity = 0;
  };
  HostBytes HostUse() const;
  using NamespacePlace = std::pair<uint32_t, std::string>;  // owner and name
  // The namespaces with these names, of any owner.
  std::vector<NamespacePlace> Named(const std::vector<std::string>& names) const;
  // Shares of a namespace that Keep may keep, and that have no durable file. Looks at a bounded number of shares whose
  // ids are greater than `after`; sets `is_all` if those were all, but for one whose bytes are still being made.
  std::vector<SharePlace> NotDurable(const NamespaceKey& of, ShareId after, bool* is_all) const;

  // Memory for bytes that come back, charged as that of the share's maker.
  class Reserved {
   public:
    Reserved();
    Reserved(Reserved&&) noexcept;
    Reserved& operator=(Reserved&&) = delete;
    ~Reserved();
    const std::shared_ptr<MemoryBlock>& block() const;

   private:
    friend class Tiers;
    std::unique_ptr<Arena> arena_;
  };
  // RESOURCE_EXHAUSTED as Allocate, also while there may be room later. Slow (populates).
  Result<Reserved> Reserve(const SharePlace& place);
  // The memory has the bytes, and no process can write it: sessions get leases from now on. Returns the file, which the
  // share no longer has unless it is durable; empty if the bytes were in memory already.
  Result<Stored> MoveIn(const SharePlace& place, Reserved reserved);
  // The file is damaged and was set aside: does nothing if the share has another one now. A share whose bytes are not
  // in memory is lost, and keeps its name until it is withdrawn or replaced.
  void Lose(const SharePlace& place, std::string_view damaged);

  // Shares of a namespace that have a file. Looks at a bounded number of shares whose ids are greater than `after`.
  struct Listed {
    std::vector<TieredRow> rows;
    uint64_t next = 0;  // the greatest id that it has looked at; 0: that was all
  };
  Result<Listed> List(SessionId session, std::string_view ns, uint64_t after) const;
  // Of all namespaces. Slow: only while no client is served.
  std::vector<TieredRow> All() const;
  // Gives the file of a share that an earlier daemon left to its owner.
  void Own(const SharePlace& place, std::shared_ptr<const void> owner);

  // True: this daemon continues no other one, so shares of an earlier broker are in its files alone.
  bool is_first() const;
  // A durable file that an earlier broker left: the share has its name and its generation again. ALREADY_EXISTS:
  // another share has the name, or its lifetime is over. Errors as of Publish.
  Status Import(const ShareLabel& label, Stored stored);

  // For recovery: the bytes of the arena's share are in a file.
  static Status Restore(Namespaces& namespaces, Arenas& arenas, const record::Arena& its, uint32_t record);

 private:
  static constexpr int kSharesMax = 1024;  // that one call looks at under the lock

  Broker& broker_;
};

}  // namespace arraybridge::daemon
