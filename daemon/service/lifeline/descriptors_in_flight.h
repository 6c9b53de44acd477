// SPDX-License-Identifier: Apache-2.0
// DescriptorsInFlight counts the descriptors that were sent to one user's clients and not read yet. The kernel counts
// unread descriptors against the daemon, and above its limit lets it send none to any client: each user has a limit.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>

#include "daemon/config/config.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

// Thread-safe. A socket is identified by its number, from the first Reserve until CloseWhenRead.
class DescriptorsInFlight {
 public:
  // `epoll` must outlive this object. It reports kUnreadTag when a peer has read or disconnected; then call Empty.
  DescriptorsInFlight(const Limits& limits, int epoll);

  enum class Room : uint8_t { kEnough, kNoneInSession, kNoneForUser };
  // Counts the descriptors of one more frame that is to be sent to this socket's peer, if descriptors_in_flight_max and
  // _per_uid allow it.
  Room Reserve(int socket, uint64_t descriptors) AB_EXCLUDES(mutex_);
  // A frame with so many reserved descriptors has been sent, or will not be sent.
  void NoteSent(int socket, uint64_t descriptors) AB_EXCLUDES(mutex_);
  void NoteDropped(int socket, uint64_t descriptors) AB_EXCLUDES(mutex_);
  // Call it before the socket is closed, after its removal from epoll. Descriptors that the peer has not read stay in
  // flight, and counted, while the peer keeps its end open; then the object keeps the socket. Otherwise it returns the
  // socket.
  UniqueFd CloseWhenRead(UniqueFd socket) AB_EXCLUDES(mutex_);
  // True if no descriptor is reserved or unread, according to the kernel. Closes kept sockets whose descriptors have
  // been read. Called by epoll's thread.
  bool Empty() AB_EXCLUDES(mutex_);

  static constexpr uint64_t kUnreadTag = 1;  // not the tag of a lifeline: their tags start at 2

 private:
  struct Count {
    uint64_t owed = 0;
    uint64_t unread = 0;         // an upper bound: the sum of
    std::deque<uint8_t> frames;  // the descriptors of each frame that may be unread, oldest first
  };
  static void Recount(int socket, Count* count);
  void RecountAll() AB_REQUIRES(mutex_);
  uint64_t Total() const AB_REQUIRES(mutex_);

  const uint64_t most_of_session_;
  const uint64_t most_of_user_;
  const int epoll_;
  Mutex mutex_;
  std::unordered_map<int, Count> counts_ AB_GUARDED_BY(mutex_);
  std::unordered_map<int, UniqueFd> unread_sockets_ AB_GUARDED_BY(mutex_);  // kept sockets, whose counts are not 0
};

}  // namespace arraybridge::daemon
