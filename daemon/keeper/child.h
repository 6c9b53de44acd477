// SPDX-License-Identifier: Apache-2.0
// A Child is what the keeper needs to start a daemon: the program's path, its arguments without --keeper, and the
// descriptors that are passed to it by number.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "daemon/keeper/held_descriptors.h"

namespace arraybridge::daemon {

class Child {
 public:
  // Variables of the environment of the daemon.
  struct Variables {
    int notify_fd;              // $NOTIFY_SOCKET, as fd: and its number in the daemon
    unsigned long entries_max;  // $FDSTORE
    const char* last_end;       // $KEEPER_LAST_END: why the last daemon ended; empty for the first
  };

  // Finds --ready-fd and --life-fd among the arguments. `mask`: the signal mask of the daemons. Allocates.
  Child(int argc, char** argv, const sigset_t& mask);

  // The process id of the new daemon; -1: the process could not be created. It has its own pid in $LISTEN_PID, and the
  // held descriptors from 3 on. Does not allocate in this process.
  pid_t Start(HeldDescriptors& held, const Variables& variables);

  // The first daemon has written the ready line; the later ones write theirs to /dev/null, so that the reader sees the
  // end of file.
  void CloseReadyFd() const;
  // Its end of file means that the program that started the keeper has ended; -1: there is none.
  int life_fd() const { return life_fd_; }

 private:
  [[noreturn]] void Become(HeldDescriptors& held, const Variables& variables, pid_t keeper);
  // Renumbers --ready-fd and --life-fd, because the descriptors from 3 on are the held ones.
  // Returns the number of `notify_fd` in the daemon.
  int PassDescriptors(const HeldDescriptors& held, int notify_fd);

  const sigset_t mask_;
  std::string path_;  // not the file: a program that was replaced on the disk is taken with the next start
  std::vector<std::string> arguments_;
  int ready_fd_ = -1;
  int life_fd_ = -1;
};

}  // namespace arraybridge::daemon
