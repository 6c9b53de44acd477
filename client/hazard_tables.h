// HazardTables are how a session reads its namespace without calls. It asks the broker for the catalogue and a hazard
// page with its second Acquire, beside it, and takes slots from then on. There is one table for each namespace of that
// name that came and went.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/hazard_table.h"
#include "client/lifeline.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe. What it has given out lives as long as the session. REQUIRES: the Lifeline ends before it does.
class HazardTables {
 public:
  HazardTables(std::string ns, bool wanted, Lifeline& lifeline)
      : ns_(std::move(ns)), wanted_(wanted), lifeline_(lifeline) {}
  HazardTables(const HazardTables&) = delete;
  HazardTables& operator=(const HazardTables&) = delete;

  // Nothing: it has to be asked for by a call.
  HazardSlot Take(std::string_view ns, std::string_view name);
  // An Acquire in this namespace is about to be asked. Asks for the pages, once it is worth it; waits for nothing.
  void Prefetch(std::string_view ns) AB_EXCLUDES(mutex_);
  // Slots taken so far.
  uint64_t taken() const AB_EXCLUDES(mutex_);

 private:
  static constexpr uint64_t kTablesMax = 64;  // of namespaces of this name that came and went
  static constexpr uint64_t kFirst = 2;       // which Acquire is worth a catalogue
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
  uint64_t acquires_ AB_GUARDED_BY(mutex_) = 0;  // by calls, since there was a table
  uint64_t ask_with_ AB_GUARDED_BY(mutex_) = kFirst;
  uint64_t pause_ AB_GUARDED_BY(mutex_) = 16;  // acquires until a refusal is asked about again, doubling
  std::unique_ptr<const ReadCatalogue> catalogue_ AB_GUARDED_BY(mutex_);    // whose page is on its way
  std::vector<std::unique_ptr<HazardTable>> tables_ AB_GUARDED_BY(mutex_);  // the last is the one of now
};

}  // namespace arraybridge
