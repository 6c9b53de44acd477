// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/tiers/fetches.h"

#include <utility>

namespace arraybridge::daemon {

Status Fetches::Add(Fetch fetch) {
  const MutexLock lock(mutex_);
  const auto [at, is_new] = all_.try_emplace(fetch.place);
  Wanted& wanted = at->second;
  if (!wanted.failed.ok()) return wanted.failed;
  wanted.name = std::move(fetch.name);
  wanted.until = fetch.until;
  if (is_new) lines_[fetch.place.owner].push_back(fetch.place);
  return Ok();
}

std::optional<Fetches::Fetch> Fetches::Next() {
  const MutexLock lock(mutex_);
  if (lines_.empty()) return std::nullopt;
  auto line = lines_.upper_bound(last_owner_);
  if (line == lines_.end()) line = lines_.begin();
  last_owner_ = line->first;
  const SharePlace place = std::move(line->second.front());
  line->second.pop_front();
  if (line->second.empty()) lines_.erase(line);
  const Wanted& wanted = all_.at(place);
  return Fetch{place, wanted.name, wanted.until};
}

void Fetches::PutBack(const SharePlace& place) {
  const MutexLock lock(mutex_);
  lines_[place.owner].push_back(place);
}

void Fetches::Fail(const SharePlace& place, Status why) {
  const MutexLock lock(mutex_);
  all_[place].failed = std::move(why);
}

void Fetches::Forget(const SharePlace& place) {
  const MutexLock lock(mutex_);
  all_.erase(place);
}

bool Fetches::empty() const {
  const MutexLock lock(mutex_);
  return lines_.empty();
}

}  // namespace arraybridge::daemon
