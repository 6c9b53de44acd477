// DescriptorsInFlight are those that one user's clients were sent and have not read. The kernel counts them, whoever
// hoards them, against the daemon, and beyond its limit lets it send none to anybody: so every user has a limit.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "daemon/config/config.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Thread-safe. Sockets are known by their numbers from the first Reserve until Bury.
class DescriptorsInFlight {
 public:
  // `epoll` outlives it and says kGraveTag when Empty is to be asked: a peer has read, or gone.
  DescriptorsInFlight(const Limits& limits, int epoll);
  DescriptorsInFlight(const DescriptorsInFlight&) = delete;
  DescriptorsInFlight& operator=(const DescriptorsInFlight&) = delete;

  enum class Room : uint8_t { kEnough, kNoneInSession, kNoneForUser };
  // Counts the descriptors of one more frame that is owed to this socket's peer, if descriptors_in_flight_max and
  // _per_uid allow.
  Room Reserve(int socket, uint64_t descriptors) AB_EXCLUDES(mutex_);
  // A frame with so many, which was owed, has been sent, or never will be.
  void NoteSent(int socket, uint64_t descriptors) AB_EXCLUDES(mutex_);
  void NoteDropped(int socket, uint64_t descriptors) AB_EXCLUDES(mutex_);
  // Before it is closed, and when epoll has forgotten it: what the peer has not read stays in flight, and counted, for
  // as long as the peer has its end. Gives the socket back if that is nothing.
  UniqueFd Bury(UniqueFd socket) AB_EXCLUDES(mutex_);
  // Neither owed nor unread by anybody, as far as the kernel knows now. Closes what was buried. For epoll's thread.
  bool Empty() AB_EXCLUDES(mutex_);

  static constexpr uint64_t kGraveTag = 1;  // of no lifeline: their keys start at 1, their tags at 2

 private:
  struct Count {
    uint64_t owed = 0;
    uint64_t unread = 0;         // at most so many,
    std::deque<uint8_t> frames;  // in these frames, the last that were sent
  };
  static void Recount(int socket, Count* count);
  void RecountAll() AB_REQUIRES(mutex_);
  uint64_t Total() const AB_REQUIRES(mutex_);

  const uint64_t most_of_session_;
  const uint64_t most_of_user_;
  const int epoll_;
  Mutex mutex_;
  std::unordered_map<int, Count> counts_ AB_GUARDED_BY(mutex_);
  std::unordered_map<int, UniqueFd> buried_ AB_GUARDED_BY(mutex_);  // their counts are not 0
};

}  // namespace arraybridge
