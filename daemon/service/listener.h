// The Listener owns the doors' sockets: the directory and its lock, binding (or the sockets that systemd passes),
// accepting, and identifying the peer. gRPC does not listen, because it would unlink a running daemon's socket and hide
// the peer, and would accept any number of TCP connections.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/passed_sockets.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// An accepted connection and its peer.
struct Connection {
  UniqueFd socket;  // non-blocking
  Peer peer;        // uid, gid, process_id, door; for a lifeline also process; for TCP only door
  // The kernel refuses descriptors that the peer sends. Without this, closing the socket with unread messages can block
  // for as long as the peer likes: use CloseAside.
  bool takes_no_descriptors = false;
};

// The peer's process. Invalid if the kernel cannot provide it: other PID namespaces before Linux 6.5.
ProcessFd ProcessOf(int socket, uint64_t process_id);

class Listener {
 public:
  using Handler = std::function<void(Connection)>;

  // Locks the directory and binds the sockets that were not passed; accepts no connection before Start.
  // FAILED_PRECONDITION: another daemon uses the directory.
  static Result<std::unique_ptr<Listener>> Open(const Config& config, PassedSockets passed = {});
  // Stops accepting and removes the sockets that it has bound.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Accepts connections on its own thread and calls the handlers there. The handlers must not block. REQUIRES: called
  // once.
  void Start(const Handler& lifeline, const Handler& grpc, const Handler& admin, const Handler& tcp = {});
  // Stops accepting connections. Connecting is then refused or, if the service manager keeps the socket, waits for the
  // next daemon. Idempotent.
  void Stop();
  // Runs `task` on the accepting thread; drops it after Stop. Thread-safe.
  void Post(std::function<void()> task) AB_EXCLUDES(mutex_);

 private:
  struct DoorSocket;

  Listener();
  Status Bind(const std::string& path, Door kind, mode_t mode);
  Status BindTcp(const std::string& endpoint);
  void Adopt(UniqueFd socket, Door kind);
  // False: Stop was called.
  bool RunPosted() AB_EXCLUDES(mutex_);
  void Run();
  void AcceptFrom(DoorSocket& door);
  bool RefuseOverflow(DoorSocket& door);

  UniqueFd lock_;
  std::vector<std::unique_ptr<DoorSocket>> doors_;
  UniqueFd spare_;  // closed for a moment when the process has no descriptor left
  UniqueFd wake_;
  Mutex mutex_;
  std::vector<std::function<void()>> posted_ AB_GUARDED_BY(mutex_);
  bool stopping_ AB_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace arraybridge
