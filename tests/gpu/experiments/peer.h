// SPDX-License-Identifier: Apache-2.0
// A Peer is one process of an experiment, exec'd, as the director sees it: it makes driver calls on command
// (peer_program.h lists the commands) and may be killed at any time. A peer that does not answer in time ends the
// experiment.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "proto/boundary/unique_fd.h"

namespace arraybridge::experiments {

struct Answer {
  bool died = false;  // the peer has ended
  bool late = false;  // it did not answer within the command's own limit
  int code = -1;      // the CUresult of the call that failed, else 0
  std::string value;  // the result of the command, may be empty
  UniqueFd descriptor;

  bool ok() const { return !died && !late && code == 0; }
  // "0", "201", "0: 42 of 64 words", "died", "no answer"
  std::string ToString() const;
};

struct PeerOptions {
  std::string experiment;
  std::string driver;                      // path of the library
  std::vector<std::string> under{};        // a command that runs another one: unshare, setpriv
  std::vector<std::string> environment{};  // NAME=value
};

class Peer {
 public:
  using Late = std::function<void(const std::string& what)>;

  // `late` is called when the deadline, if there is one, passes without an answer, and does not return.
  Peer(std::string name, const PeerOptions& options, std::optional<std::chrono::steady_clock::time_point> deadline,
       Late late);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  Answer Do(const std::string& command, int descriptor = -1);
  // Do in two halves, for commands that take long.
  void Say(const std::string& command, int descriptor = -1);
  Answer Hear();
  // For commands that may never return. A peer that does not answer in time is killed, and its death is not awaited: a
  // driver may not let it go.
  Answer DoWithin(const std::string& command, std::chrono::steady_clock::time_point deadline);

  // Sends SIGKILL, without waiting for the death.
  void Kill() const;
  // Lets it end by itself, and waits for that.
  void End();
  pid_t id() const { return id_; }
  int socket() const { return socket_.get(); }

 private:
  const std::string name_;
  const std::optional<std::chrono::steady_clock::time_point> deadline_;
  const Late late_;
  std::string doing_;
  pid_t id_ = 0;
  UniqueFd socket_;
};

}  // namespace arraybridge::experiments
