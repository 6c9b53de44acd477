#include "daemon/service/descriptors_in_flight.h"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <utility>

#include "daemon/service/closer.h"

namespace arraybridge {
namespace {

// A frame costs its sender's socket at least this much until it is read.
constexpr uint64_t kFrameAccountedBytesMin = 512;

}  // namespace

DescriptorsInFlight::DescriptorsInFlight(const Limits& limits, int epoll)
    : most_of_session_(limits.descriptors_in_flight_max),
      most_of_user_(limits.descriptors_in_flight_per_uid),
      epoll_(epoll) {}

// The kernel says how many bytes are unread, which bounds the frames, which bound the descriptors.
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

// The kernel is asked only when a limit seems to be reached: of one that reads, by one call.
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

UniqueFd DescriptorsInFlight::Bury(UniqueFd socket) {
  const MutexLock lock(mutex_);
  const auto found = counts_.find(socket.get());
  if (found == counts_.end()) return socket;
  found->second.owed = 0;
  Recount(socket.get(), &found->second);
  if (found->second.unread > 0) {
    epoll_event event{};
    event.events = EPOLLOUT | EPOLLET;  // it has hung up already, and would say so without end
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
