// The Listener owns the doors' sockets: the directory and its lock, binding (or what systemd passes), accepting, and
// who the peer is. gRPC never listens by itself: it would unlink a living daemon's socket and hide the peer; and over
// TCP it would take as many as come.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/system/passed_sockets.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// A connection that was accepted, and who is at its other end.
struct Connection {
  UniqueFd socket;  // non-blocking
  Peer peer;        // uid, gid, process_id, door; of a lifeline its process, too; of one over TCP the door alone
  // The kernel refuses what the peer attaches to a message. Otherwise closing the socket, with unread messages in it,
  // may sleep for as long as the peer likes: CloseAside.
  bool takes_no_descriptors = false;
};

// The process at the other end. Invalid where the kernel has none: other PID namespaces before Linux 6.5.
ProcessFd ProcessOf(int socket, uint64_t process_id);

class Listener {
 public:
  using Handler = std::function<void(Connection)>;

  // Locks the directory and binds the sockets, but for those that were passed; nobody is accepted before Start.
  // FAILED_PRECONDITION if another daemon lives there.
  static Result<std::unique_ptr<Listener>> Open(const Config& config, PassedSockets passed = {});
  // Stops accepting, removes the sockets that it bound.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Accepts on a thread of its own and calls one of the handlers there. They must not block.
  // REQUIRES: called once.
  void Start(const Handler& lifeline, const Handler& grpc, const Handler& admin, const Handler& tcp = {});
  // No connection is accepted any more; connecting is refused, or waits for the next daemon where the manager keeps the
  // socket. Idempotent.
  void Stop();
  // Thread-safe. Runs it on the accepting thread; dropped after Stop.
  void Post(std::function<void()> task) AB_EXCLUDES(mutex_);

 private:
  struct DoorSocket;

  Listener();
  Status Bind(const std::string& path, Door kind, mode_t mode);
  Status BindTcp(const std::string& endpoint);
  void Adopt(UniqueFd socket, Door kind);
  // False: Stop came.
  bool RunPosted() AB_EXCLUDES(mutex_);
  void Run();
  void AcceptFrom(DoorSocket& door);
  bool RefuseOverflow(DoorSocket& door);

  UniqueFd lock_;
  std::vector<std::unique_ptr<DoorSocket>> doors_;
  UniqueFd spare_;  // given up for a moment when the process has no descriptor left
  UniqueFd wake_;
  Mutex mutex_;
  std::vector<std::function<void()>> posted_ AB_GUARDED_BY(mutex_);
  bool stopping_ AB_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace arraybridge
