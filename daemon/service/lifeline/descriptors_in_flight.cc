// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/lifeline/descriptors_in_flight.h"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <utility>

#include "daemon/service/system/closer.h"

namespace arraybridge::daemon {
namespace {

// The minimum number of bytes that an unread frame occupies in its sender's socket.
constexpr uint64_t kFrameAccountedBytesMin = 512;

}  // namespace

DescriptorsInFlight::DescriptorsInFlight(const Limits& limits, int epoll)
    : most_of_session_(limits.descriptors_in_flight_max),
      most_of_user_(limits.descriptors_in_flight_per_uid),
      epoll_(epoll) {}

// The kernel reports the number of unread bytes, which bounds that of unread frames and hence of descriptors.
void DescriptorsInFlight::Recount(int socket, Count* count) {
  int bytes = 0;
  if (count->unread == 0 || ::ioctl(socket, SIOCOUTQ, &bytes) != 0) return;
  while (count->frames.size() > static_cast<uint64_t>(bytes) / kFrameAccountedBytesMin) {
    count->unread -= count->frames.front();
    count->frames.pop_front();
  }
}

void DescriptorsInFlight::RecountAll() {
  for (auto& [socket, count] : counts_) Recount(socket, &count);
}

uint64_t DescriptorsInFlight::Total() const {
  uint64_t total = 0;
  for (const auto& [socket, count] : counts_) total += count.owed + count.unread;
  return total;
}

// Asks the kernel only when a limit seems to be reached, which costs one call for a client that reads.
DescriptorsInFlight::Room DescriptorsInFlight::Reserve(int socket, uint64_t descriptors) {
  const MutexLock lock(mutex_);
  Count& count = counts_[socket];
  if (count.owed + count.unread + descriptors > most_of_session_) Recount(socket, &count);
  if (count.owed + count.unread + descriptors > most_of_session_) return Room::kNoneInSession;
  if (Total() + descriptors > most_of_user_) RecountAll();
  if (Total() + descriptors > most_of_user_) return Room::kNoneForUser;
  count.owed += descriptors;
  return Room::kEnough;
}

void DescriptorsInFlight::NoteSent(int socket, uint64_t descriptors) {
  const MutexLock lock(mutex_);
  Count& count = counts_[socket];
  count.owed -= descriptors;
  count.unread += descriptors;
  count.frames.push_back(static_cast<uint8_t>(descriptors));
}

void DescriptorsInFlight::NoteDropped(int socket, uint64_t descriptors) {
  const MutexLock lock(mutex_);
  counts_[socket].owed -= descriptors;
}

UniqueFd DescriptorsInFlight::CloseWhenRead(UniqueFd socket) {
  const MutexLock lock(mutex_);
  const auto found = counts_.find(socket.get());
  if (found == counts_.end()) return socket;
  found->second.owed = 0;
  Recount(socket.get(), &found->second);
  if (found->second.unread > 0) {
    epoll_event event{};
    event.events = EPOLLOUT | EPOLLET;  // edge-triggered, because the hang-up would be reported endlessly
    event.data.u64 = kUnreadTag;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket.get(), &event);
    unread_sockets_.emplace(found->first, std::move(socket));
    return {};
  }
  counts_.erase(found);
  return socket;
}

bool DescriptorsInFlight::Empty() {
  const MutexLock lock(mutex_);
  RecountAll();
  for (auto unread = unread_sockets_.begin(); unread != unread_sockets_.end();) {
    if (counts_.at(unread->first).unread > 0) {
      ++unread;
      continue;
    }
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, unread->first, nullptr);
    counts_.erase(unread->first);
    CloseAside(std::move(unread->second));
    unread = unread_sockets_.erase(unread);
  }
  return Total() == 0;
}

}  // namespace arraybridge::daemon
