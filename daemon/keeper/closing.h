// SPDX-License-Identifier: Apache-2.0
// Closing closes descriptors whose last close may take long: a lifeline whose client has left an unread socket in it
// that lingers (before Linux 6.16), and large memory. A process of its own closes them while the keeper goes on.
//
// It is a fork, which has a copy of each descriptor. It first drops all others, while the keeper waits. Then the keeper
// closes its own, which cannot be the last. The process ends with the last ones, because the end of a process does not
// wait for a socket that lingers. Nothing that is being closed is among the descriptors of the next daemon, whose start
// would otherwise sleep instead.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <span>

namespace arraybridge::daemon {

// All memory is part of the object.
class Closing {
 public:
  // Descriptors of sockets that wait for Start.
  static constexpr size_t kSocketsMax = 128;
  // Processes at a time that close sockets, and that close memory, each. Without one the keeper closes itself.
  static constexpr size_t kProcessesMax = 32;

  // Takes the descriptor of a client's socket. It is closed after the next Start, or at once if no descriptor can be in
  // it.
  void CloseSocket(int fd);
  // Of the memory of an arena, of a page or of a pipe: closed here if that is quick.
  void Close(int fd);

  // Starts to close the sockets that were taken. Call it when a batch has ended: a process takes about a millisecond.
  void Start();
  // The child has ended. False: it is none of these processes.
  bool Ended(pid_t child);

 private:
  using Processes = std::array<pid_t, kProcessesMax>;  // 0: none
  static void CloseAside(std::span<const int> descriptors, Processes& processes);

  size_t count_ = 0;
  std::array<int, kSocketsMax> sockets_{};
  Processes for_sockets_{};
  Processes for_memory_{};
};

}  // namespace arraybridge::daemon
