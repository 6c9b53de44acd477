// SPDX-License-Identifier: Apache-2.0
// The Listener owns the doors' sockets: the directory and its lock, binding (or the sockets that systemd passes),
// accepting, and identifying the peer. Unix sockets that it binds itself are kept in the DescriptorStore, so that
// clients that connect between two daemons wait for the next one. It takes a stored socket only while the socket's file
// is still in place. gRPC does not listen, because it would unlink a running daemon's socket and hide the peer.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/memory/descriptor_store.h"
#include "daemon/service/system/passed_sockets.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

// An accepted connection and its peer.
struct Connection {
  UniqueFd socket;  // non-blocking
  Peer peer;        // uid, gid, process_id, door; for a lifeline also process
  // The kernel refuses descriptors that the peer sends. Without this, closing the socket with unread messages can block
  // for as long as the peer likes: use CloseAside.
  bool takes_no_descriptors = false;
};

// The connection of a client of the previous daemon. `socket` is invalid if the client has gone.
Connection IdentifyLifeline(UniqueFd socket);

// The peer's process. Invalid if the kernel cannot provide it: other PID namespaces before Linux 6.5.
ProcessFd ProcessOf(int socket, uint64_t process_id);

class Listener {
 public:
  using Handler = std::function<void(Connection)>;

  // Locks the directory and binds the sockets that were not passed; accepts no connection before Start.
  // FAILED_PRECONDITION: another daemon uses the directory. `store`: outlives this object; null: sockets end with this
  // process.
  static Result<std::unique_ptr<Listener>> Open(const Config& config, PassedSockets passed = {},
                                                DescriptorStore* store = nullptr);
  // Stops accepting. Removes the files of the sockets that daemons of this directory have bound, unless LeaveFiles says
  // otherwise.
  ~Listener();

  // Accepts connections on its own thread and calls the handlers there. The handlers must not block. REQUIRES: called
  // once.
  void Start(const Handler& lifeline, const Handler& grpc, const Handler& admin);
  // Stops accepting connections. Connecting is then refused or, if the service manager keeps the socket, waits for the
  // next daemon. Idempotent.
  void Stop();
  // Whether the store keeps the sockets for a next daemon, which then needs their files. Until the first call: yes, if
  // this daemon has itself received a socket from an earlier one.
  void LeaveFiles(bool leave) { leaves_files_ = leave; }
  // When this object is destroyed, the directory of the daemon goes too, if nothing but a log is left in it.
  void RemoveDirectory() { removes_directory_ = true; }
  // Runs `task` on the accepting thread; drops it after Stop. Thread-safe.
  void Post(std::function<void()> task) AB_EXCLUDES(mutex_);

 private:
  struct DoorSocket;

  explicit Listener(DescriptorStore* store);
  // `path`: empty if the door is off and no service manager passed a socket for it.
  Status OpenDoor(PassedSockets& passed, std::string_view name, Door kind, const std::string& path, mode_t mode);
  bool TakeOwn(std::vector<StoredDescriptor> own, std::string_view name, Door kind, const std::string& path);
  Status Bind(const std::string& path, std::string_view name, Door kind, mode_t mode);
  void Adopt(UniqueFd socket, Door kind);
  // False: Stop was called.
  bool RunPosted() AB_EXCLUDES(mutex_);
  void Run();
  void AcceptFrom(DoorSocket& door);
  bool RefuseOverflow(DoorSocket& door);

  DescriptorStore* const store_;
  bool leaves_files_ = false;
  bool removes_directory_ = false;
  std::string directory_;
  UniqueFd lock_;
  std::vector<std::unique_ptr<DoorSocket>> doors_;
  UniqueFd spare_;  // closed for a moment when the process has no descriptor left
  UniqueFd wake_;
  Mutex mutex_;
  std::vector<std::function<void()>> posted_ AB_GUARDED_BY(mutex_);
  bool stopping_ AB_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace arraybridge::daemon
