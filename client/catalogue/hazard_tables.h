// SPDX-License-Identifier: Apache-2.0
// HazardTables lets a session read its namespace without requests. With the session's second Acquire it asks the broker
// for the catalogue and a hazard page, and from then on it takes hazard slots. It has one table for each namespace that
// existed under the session's name.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/catalogue/hazard_table.h"
#include "client/lifeline/lifeline.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe. Its tables live as long as the session. REQUIRES: the Lifeline ends before it does.
class HazardTables {
 public:
  HazardTables(std::string ns, bool wanted, Lifeline& lifeline)
      : ns_(std::move(ns)), wanted_(wanted), lifeline_(lifeline) {}

  // Returns an empty slot if a request is needed.
  HazardSlot Take(std::string_view ns, std::string_view name);
  // Called before an Acquire request in this namespace. Asks for the pages once that is worth it. Never waits.
  void Prefetch(std::string_view ns) AB_EXCLUDES(mutex_);
  // As HazardTable::FindHeld, in all tables.
  catalogue::Facts FindHeld(uint64_t arena, uint64_t offset, uint64_t bytes) const AB_EXCLUDES(mutex_);
  // The number of slots taken so far.
  uint64_t taken() const AB_EXCLUDES(mutex_);

 private:
  static constexpr uint64_t kTablesMax = 64;  // successive namespaces of this name
  static constexpr uint64_t kFirst = 2;       // the Acquire that asks for a catalogue
  static constexpr uint64_t kNever = UINT64_MAX;

  void Ask();
  void HaveCatalogue(const Result<Answer>& answer) AB_EXCLUDES(mutex_);
  void HavePage(const Result<Answer>& answer) AB_EXCLUDES(mutex_);
  void Refused(const Status& why) AB_EXCLUDES(mutex_);

  const std::string ns_;
  const bool wanted_;
  Lifeline& lifeline_;
  std::atomic<HazardTable*> now_{nullptr};
  mutable Mutex mutex_;
  uint64_t acquires_ AB_GUARDED_BY(mutex_) = 0;  // sent as requests while there is no table
  uint64_t ask_with_ AB_GUARDED_BY(mutex_) = kFirst;
  uint64_t pause_ AB_GUARDED_BY(mutex_) = 16;  // Acquires from a refusal to the next attempt; doubles
  std::unique_ptr<const ReadCatalogue> catalogue_ AB_GUARDED_BY(mutex_);    // its hazard page is on the way
  std::vector<std::unique_ptr<HazardTable>> tables_ AB_GUARDED_BY(mutex_);  // the last one is current
};

}  // namespace arraybridge
