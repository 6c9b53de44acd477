// A Peer is one of an experiment's processes, exec'd, seen from the director: it makes driver calls when it is told to
// (peer_program.h lists the words) and may be killed at any time. A peer that does not answer in time ends the
// experiment.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "proto/boundary/unique_fd.h"

namespace arraybridge::experiments {

struct Answer {
  bool died = false;  // the peer is no more
  int code = -1;      // the CUresult of the call that failed, else 0
  std::string value;  // what the command is asked for, may be empty
  UniqueFd descriptor;

  bool ok() const { return !died && code == 0; }
  // "0", "201", "0: 42 of 64 words", "died"
  std::string ToString() const;
};

struct PeerOptions {
  std::string experiment;
  std::string driver;                      // path of the library
  std::vector<std::string> under{};        // a command that runs what follows it: unshare, setpriv
  std::vector<std::string> environment{};  // NAME=value
};

class Peer {
 public:
  using Late = std::function<void(const std::string& what)>;

  // `late` is called when the deadline passes unanswered, and does not return.
  Peer(std::string name, const PeerOptions& options, std::chrono::steady_clock::time_point deadline, Late late);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  Answer Do(const std::string& command, int descriptor = -1);
  // Do in two halves, for what takes its time.
  void Say(const std::string& command, int descriptor = -1);
  Answer Hear();

  // SIGKILL, without waiting for the death.
  void Kill() const;
  // Lets it end by itself, and waits for that.
  void End();
  pid_t id() const { return id_; }
  int socket() const { return socket_.get(); }

 private:
  const std::string name_;
  const std::chrono::steady_clock::time_point deadline_;
  const Late late_;
  std::string doing_;
  pid_t id_ = 0;
  UniqueFd socket_;
};

}  // namespace arraybridge::experiments
