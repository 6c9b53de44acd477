// SPDX-License-Identifier: Apache-2.0
#include "client/born_tally/tallies.h"

#include <limits>
#include <utility>

#include <arraybridge/born/heap.h>

#include "client/session/connection.h"

namespace arraybridge {
namespace {

// The words of figures are written by one thread at a time.
Mutex g_writing;

// False: the session has no pages yet.
bool Write(Session& session, const born::Figures& more) {
  const MutexLock lock(g_writing);
  born::Figures* const figures = session.lifeline().born();
  if (figures != nullptr) born::Add(*figures, more);
  return figures != nullptr;
}

// The pages come with the answers to two requests. Never waits for them.
void WantPages(Session& session) {
  if (session.lifeline().has_queue()) return;
  session.lifeline().WantQueue();
  session.lifeline().ReadArrived();
}

}  // namespace

born::Figures BornTally::Counts::Since(const Counts& earlier, size_t framework) const {
  born::Figures more{.arrays = arrays - earlier.arrays};
  more.bytes[framework] = bytes - earlier.bytes;
  for (size_t i = 0; i < kBornMisses; ++i) {
    const uint64_t misses = missed[i] - earlier.missed[i];
    more.missed[i] = static_cast<uint32_t>(std::min<uint64_t>(misses, std::numeric_limits<uint32_t>::max()));
    more.missed_bytes += missed_bytes[i] - earlier.missed_bytes[i];
  }
  return more;
}

BornTally::Counts BornTally::counts() const {
  Counts counts{.arrays = arrays_.load(), .bytes = bytes_.load()};
  for (size_t i = 0; i < kBornMisses; ++i) {
    counts.missed[i] = missed_[i].load();
    counts.missed_bytes[i] = missed_bytes_[i].load();
  }
  return counts;
}

std::shared_ptr<BornTally> BornTallies::Add(size_t framework) {
  const MutexLock lock(mutex_);
  return entries_.emplace_back(Entry{std::make_shared<BornTally>(framework), {}}).tally;
}

bool BornTallies::Tell(Entry& entry, Session& session) {
  const BornTally::Counts now = entry.tally->counts();
  const born::Figures more = now.Since(entry.told, entry.tally->framework());
  if (more == born::Figures{}) return true;
  if (!Write(session, more)) return false;
  entry.told = now;
  return true;
}

void BornTallies::Tell(Session& session) {
  {
    const MutexLock lock(mutex_);
    if (entries_.empty()) return;
  }
  WantPages(session);
  const MutexLock lock(mutex_);
  std::erase_if(entries_, [&session](Entry& entry) {
    const bool is_over = entry.tally.use_count() == 1;  // before the look at its counts, which is then the last
    return Tell(entry, session) && is_over;
  });
}

bool BornHeap::Tell(Broker& broker, const born::Figures& more) {
  const auto connection = broker.connection();
  const auto session = connection == nullptr ? nullptr : connection->current();
  if (session == nullptr) return false;
  WantPages(*session);
  return Write(*session, more);
}

}  // namespace arraybridge
