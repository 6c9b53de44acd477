#include "daemon/service/descriptors_in_flight.h"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <utility>

#include "daemon/service/closer.h"

namespace arraybridge {
namespace {

// The minimum number of bytes that an unread frame occupies in its sender's socket.
constexpr uint64_t kFrameAccountedBytesMin = 512;

}  // namespace

DescriptorsInFlight::DescriptorsInFlight(const Limits& limits, int epoll)
    : most_of_session_(limits.descriptors_in_flight_max),
      most_of_user_(limits.descriptors_in_flight_per_uid),
      epoll_(epoll) {}

// The kernel reports the number of unread bytes, which bounds the number of unread frames and hence of unread
// descriptors.
void DescriptorsInFlight::Recount(int socket, Count* count) {
  int bytes = 0;
  if (count->unread == 0 || ::ioctl(socket, SIOCOUTQ, &bytes) != 0) return;
  count->unread = std::min(count->unread, static_cast<uint64_t>(bytes) / kFrameAccountedBytesMin);
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
DescriptorsInFlight::Room DescriptorsInFlight::Reserve(int socket) {
  const MutexLock lock(mutex_);
  Count& count = counts_[socket];
  if (count.owed + count.unread >= most_of_session_) Recount(socket, &count);
  if (count.owed + count.unread >= most_of_session_) return Room::kNoneInSession;
  if (Total() >= most_of_user_) RecountAll();
  if (Total() >= most_of_user_) return Room::kNoneForUser;
  ++count.owed;
  return Room::kOne;
}

void DescriptorsInFlight::NoteSent(int socket) {
  const MutexLock lock(mutex_);
  Count& count = counts_[socket];
  --count.owed;
  ++count.unread;
}

void DescriptorsInFlight::NoteDropped(int socket) {
  const MutexLock lock(mutex_);
  --counts_[socket].owed;
}

UniqueFd DescriptorsInFlight::Bury(UniqueFd socket) {
  const MutexLock lock(mutex_);
  const auto found = counts_.find(socket.get());
  if (found == counts_.end()) return socket;
  found->second.owed = 0;
  Recount(socket.get(), &found->second);
  if (found->second.unread > 0) {
    epoll_event event{};
    event.events = EPOLLOUT | EPOLLET;  // edge-triggered, because the hang-up would be reported endlessly
    event.data.u64 = kGraveTag;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket.get(), &event);
    buried_.emplace(found->first, std::move(socket));
    return {};
  }
  counts_.erase(found);
  return socket;
}

bool DescriptorsInFlight::Empty() {
  const MutexLock lock(mutex_);
  RecountAll();
  for (auto grave = buried_.begin(); grave != buried_.end();) {
    if (counts_.at(grave->first).unread > 0) {
      ++grave;
      continue;
    }
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, grave->first, nullptr);
    counts_.erase(grave->first);
    CloseAside(std::move(grave->second));
    grave = buried_.erase(grave);
  }
  return Total() == 0;
}

}  // namespace arraybridge
