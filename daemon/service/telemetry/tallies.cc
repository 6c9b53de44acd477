// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/telemetry/tallies.h"

#include <algorithm>

#include "daemon/at_limit.h"

namespace arraybridge::daemon {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(EndCause::kLast) + 1> kEndNames = {
    "clean", "killed", "protocol", "limit", "drain"};
constexpr std::array<std::string_view, 4> kLackNames = {"quota", "limit", "memory", "driver"};

// Converts a reason to the form of a label.
std::string LabelOf(std::string_view reason) {
  if (reason.empty()) return "other";
  std::string label(reason);
  std::ranges::transform(label, label.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return label;
}

std::string LimitOf(const Status& refusal) {
  const std::string_view limit = LimitIn(refusal);
  return limit.empty() ? LabelOf(refusal.reason()) : std::string(limit);
}

template <class Numbers, class Names>
Tallies::Counts Named(const Numbers& numbers, const Names& names) {
  Tallies::Counts counts;
  for (size_t i = 0; i < names.size(); ++i) counts.emplace(names[i], numbers[i].load(std::memory_order_relaxed));
  return counts;
}

}  // namespace

Tallies::Lack Tallies::LackOf(const Status& refusal) {
  const std::string& reason = refusal.reason();
  if (refusal.code() != Code::kResourceExhausted) return Lack::kDriver;
  if (!LimitIn(refusal).empty()) return Lack::kLimit;
  if (reason.starts_with("QUOTA")) return Lack::kQuota;
  // The host's memory, a device's, or memory of others for which the request waited until its timeout.
  return reason.starts_with("TOO_MANY") ? Lack::kLimit : Lack::kMemory;
}

void Tallies::CountRefusal(Verb verb, const Status& refusal) {
  const Code code = refusal.code();
  const bool exhausted = code == Code::kResourceExhausted;
  // An error that the request itself causes is not a failure of the device.
  const bool failed = exhausted || code == Code::kInternal || code == Code::kDataLoss;
  if (verb == Verb::kAllocate && failed) {
    lacks_[static_cast<size_t>(LackOf(refusal))].fetch_add(1, std::memory_order_relaxed);
  }
  const MutexLock lock(mutex_);
  if (exhausted) ++limit_hits_[LimitOf(refusal)];
  if (code == Code::kPermissionDenied || code == Code::kUnauthenticated) ++auth_failures_[LabelOf(refusal.reason())];
}

Tallies::Counts Tallies::ends() const { return Named(ends_, kEndNames); }

Tallies::Counts Tallies::limit_hits() const {
  const MutexLock lock(mutex_);
  return limit_hits_;
}

Tallies::Counts Tallies::auth_failures() const {
  const MutexLock lock(mutex_);
  return auth_failures_;
}

Tallies::Counts Tallies::allocation_failures() const { return Named(lacks_, kLackNames); }

}  // namespace arraybridge::daemon
