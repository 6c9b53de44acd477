// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/listener.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/system/closer.h"
#include "daemon/service/system/manager_store.h"
#include "daemon/service/telemetry/log.h"
#include "proto/boundary/frame.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5
#endif

namespace arraybridge::daemon {

struct Listener::DoorSocket {
  Door kind;
  std::string path;  // empty: the process that passed the socket removes it
  FileIdentity file;
  UniqueFd socket;
  bool takes_no_descriptors;  // also applies to accepted sockets
  Handler handler;
};

namespace {

constexpr char kLockName[] = "/lock";
constexpr char kLogName[] = "/arraybridged.log";  // of the standard error of a daemon that a Python program started
constexpr int kBacklog = 512;
constexpr int kNoDescriptorPauseMs = 100;
constexpr rlim_t kDescriptorsKept = 256;  // reserved for arenas and answers, if the limit is large

std::string Why() { return std::strerror(errno); }

// The directory of an embedded broker must be private: a process could else replace the socket, and impersonate it.
Status PrepareDirectory(const std::string& directory, bool embedded) {
  if (::mkdir(directory.c_str(), embedded ? 0700 : 0755) == 0) return Ok();
  if (errno != EEXIST) return FailedPrecondition("cannot create the directory '", directory, "': ", Why());
  struct stat found {};
  if (::lstat(directory.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) {
    return FailedPrecondition("'", directory, "' is not a directory");
  }
  if (embedded && (found.st_uid != ::geteuid() || (found.st_mode & 077) != 0)) {
    return FailedPrecondition("'", directory, "' must belong to this user and have mode 0700");
  }
  return Ok();
}

Result<UniqueFd> LockDirectory(const std::string& directory) {
  const std::string path = directory + kLockName;
  UniqueFd lock(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return FailedPrecondition("cannot open '", path, "': ", Why());
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK)
    return FailedPrecondition("another arraybridged is running in the directory '", directory, "'");
  return FailedPrecondition("cannot lock '", path, "': ", Why());
}

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return InvalidArgument("the socket path '", path, "' has ", path.size(), " bytes (the kernel's maximum is ",
                           sizeof address.sun_path - 1, ")");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

FileIdentity FileAt(const std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return {};
  return {found.st_dev, found.st_ino};
}

// The path to which a Unix socket was bound; empty if there is none.
std::string BoundPath(int socket) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  return std::string(address.sun_path, ::strnlen(address.sun_path, sizeof address.sun_path));
}

// Removes a socket only if no process accepts connections on it.
Status RemoveStale(const std::string& path, const sockaddr_un& address, int type) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return Ok();
  if (!S_ISSOCK(found.st_mode)) return FailedPrecondition("'", path, "' exists and is not a socket");
  const UniqueFd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return FailedPrecondition("cannot make a socket: ", Why());
  const bool refused =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno == ECONNREFUSED;
  if (!refused) return FailedPrecondition("another process already serves the socket '", path, "'");
  ::unlink(path.c_str());
  return Ok();
}

// The peer's supplementary groups at the time of its connection.
std::vector<uint32_t> GroupsOf(int socket) {
  socklen_t bytes = 0;
  std::vector<gid_t> groups;
  // The first call returns the number of groups, which does not change afterwards.
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, nullptr, &bytes) == 0 || errno != ERANGE) return {};
  groups.resize(bytes / sizeof(gid_t));
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) != 0) return {};
  return {groups.begin(), groups.end()};
}

Connection Identify(UniqueFd socket, Door kind) {
  Connection connection;
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return connection;
  connection.peer.uid = credentials.uid;
  connection.peer.gid = credentials.gid;
  connection.peer.process_id = static_cast<uint64_t>(credentials.pid);
  connection.peer.groups = GroupsOf(socket.get());
  connection.peer.door = kind;
  if (kind == Door::kLifeline) connection.peer.process = ProcessOf(socket.get(), connection.peer.process_id);
  connection.socket = std::move(socket);
  return connection;
}

// The kernel assigns the lowest free number, so a high number shows that few descriptors are left. Some are reserved
// for existing clients, whose answers carry descriptors of arenas.
bool TakesFromTheReserve(int fd) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const rlim_t reserve = std::min<rlim_t>(limit.rlim_cur / 4, kDescriptorsKept);
  return static_cast<rlim_t>(fd) >= limit.rlim_cur - reserve;
}

void CloseAccepted(UniqueFd socket, bool takes_no_descriptors) {
  if (!takes_no_descriptors) CloseAside(std::move(socket));
}

// Sends the reason to the peer; the caller closes the connection.
void TellLack(int socket, Door kind) {
  if (kind != Door::kLifeline) return;
  v1::Error error;
  error.set_message("the broker has no free descriptor for another connection");
  error.set_reason("DESCRIPTORS");
  const FrameHeader header{static_cast<uint16_t>(Verb::kOpenSession), 0,
                           static_cast<uint32_t>(Code::kResourceExhausted), 0};
  SendFrame(socket, header, error.SerializeAsString(), -1, false);
}

}  // namespace

Connection IdentifyLifeline(UniqueFd socket) {
  pollfd look{socket.get(), 0, 0};  // POLLHUP and POLLERR only
  if (::poll(&look, 1, 0) != 0) return CloseAside(std::move(socket)), Connection{};
  const bool takes_none = TakesNoDescriptors(socket.get());
  Connection connection = Identify(std::move(socket), Door::kLifeline);
  connection.takes_no_descriptors = takes_none;
  return connection;
}

ProcessFd ProcessOf(int socket, uint64_t process_id) {
  int fd = -1;
  socklen_t size = sizeof fd;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) != 0) {
    fd = process_id == 0 ? -1 : static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(process_id), 0));
  }
  return std::make_shared<const UniqueFd>(fd);
}

Listener::Listener(DescriptorStore* store)
    : store_(store), spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)), wake_(::eventfd(0, EFD_CLOEXEC)) {}

Result<std::unique_ptr<Listener>> Listener::Open(const Config& config, PassedSockets passed, DescriptorStore* store) {
  AB_RETURN_IF_ERROR(PrepareDirectory(config.directory, config.embedded));
  AB_ASSIGN_OR_RETURN(auto lock, LockDirectory(config.directory));
  std::unique_ptr<Listener> listener(new Listener(store));
  listener->lock_ = std::move(lock);
  listener->directory_ = config.directory;
  const mode_t mode = config.embedded ? 0600 : 0660;
  AB_RETURN_IF_ERROR(listener->OpenDoor(passed, PassedSockets::kLifeline, Door::kLifeline, config.lifeline_path, mode));
  AB_RETURN_IF_ERROR(listener->OpenDoor(passed, PassedSockets::kGrpc, Door::kGrpc, config.grpc_path, mode));
  AB_RETURN_IF_ERROR(listener->OpenDoor(passed, PassedSockets::kAdmin, Door::kAdmin, config.admin_path, mode));
  // 0.1 also listened on TCP.
  for (const StoredDescriptor& unwanted : passed.TakeOwn(PassedSockets::kTcp)) {
    if (store != nullptr) store->Remove(unwanted.name);
  }
  return listener;
}

Status Listener::OpenDoor(PassedSockets& passed, std::string_view name, Door kind, const std::string& path,
                          mode_t mode) {
  UniqueFd of_manager = passed.Take(name);
  // With the manager's socket, or without a path, an own socket is no longer wanted.
  const bool took = TakeOwn(passed.TakeOwn(name), name, kind, of_manager.valid() ? std::string() : path);
  if (of_manager.valid()) {
    Adopt(std::move(of_manager), kind);
    return Ok();
  }
  return took || path.empty() ? Ok() : Bind(path, name, kind, mode);
}

// Takes the stored socket whose file is at `path`, and drops the others.
bool Listener::TakeOwn(std::vector<StoredDescriptor> own, std::string_view name, Door kind, const std::string& path) {
  bool took = false;
  for (StoredDescriptor& each : own) {
    const std::string bound = BoundPath(each.fd.get());
    const FileIdentity file = FileAt(bound);
    const bool is_in_place = PassedSockets::OwnName(name, file) == each.name;
    if (!took && is_in_place && bound == path) {
      ::listen(each.fd.get(),
               kBacklog);  // the peers of new connections then see this process, not the one that bound it
      Adopt(std::move(each.fd), kind);
      doors_.back()->path = path;
      doors_.back()->file = file;
      leaves_files_ = took = true;
      continue;
    }
    if (is_in_place) ::unlink(bound.c_str());
    if (store_ != nullptr) store_->Remove(each.name);
  }
  return took;
}

void Listener::Adopt(UniqueFd socket, Door kind) {
  const bool takes_no_descriptors = TakeNoDescriptors(socket.get());
  doors_.push_back(
      std::make_unique<DoorSocket>(DoorSocket{kind, {}, {}, std::move(socket), takes_no_descriptors, nullptr}));
}

// The mode is set between bind and listen, because no client can connect before listen.
Status Listener::Bind(const std::string& path, std::string_view name, Door kind, mode_t mode) {
  const int type = kind == Door::kLifeline ? SOCK_SEQPACKET : SOCK_STREAM;
  AB_ASSIGN_OR_RETURN(const auto address, AddressOf(path));
  AB_RETURN_IF_ERROR(RemoveStale(path, address, type));
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return FailedPrecondition("cannot make a socket: ", Why());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(sockaddr_un)) != 0) {
    return FailedPrecondition("cannot bind '", path, "': ", Why());
  }
  doors_.push_back(
      std::make_unique<DoorSocket>(DoorSocket{kind, path, FileAt(path), std::move(socket), false, nullptr}));
  const int fd = doors_.back()->socket.get();
  doors_.back()->takes_no_descriptors = TakeNoDescriptors(fd);
  if (::chmod(path.c_str(), mode) != 0 || ::listen(fd, kBacklog) != 0) {
    return FailedPrecondition("cannot listen at '", path, "': ", Why());
  }
  StoreOrWarn(store_, PassedSockets::OwnName(name, doors_.back()->file), fd, path);
  return Ok();
}

Listener::~Listener() {
  Stop();
  if (leaves_files_) return;
  for (const auto& door : doors_) {
    // Another daemon may meanwhile use the same path, so only our own socket file is removed.
    if (!door->path.empty() && FileAt(door->path) == door->file) ::unlink(door->path.c_str());
  }
  if (!removes_directory_) return;
  // The lock last: until then no other daemon uses the directory.
  for (const char* const name : {kLogName, kLockName}) ::unlink((directory_ + name).c_str());
  ::rmdir(directory_.c_str());
}

void Listener::Start(const Handler& lifeline, const Handler& grpc, const Handler& admin) {
  const auto handler_of = [&](Door kind) -> const Handler& {
    if (kind == Door::kLifeline) return lifeline;
    return kind == Door::kGrpc ? grpc : admin;
  };
  for (const auto& door : doors_) door->handler = handler_of(door->kind);
  thread_ = std::thread([this] { Run(); });
}

void Listener::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
  for (const auto& door : doors_) door->socket.reset();
}

void Listener::Run() {
  std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}};
  for (const auto& door : doors_) polled.push_back({door->socket.get(), POLLIN, 0});
  while (true) {
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents != 0 && !RunPosted()) return;
    for (size_t i = 0; i < doors_.size(); ++i) {
      if (polled[i + 1].revents != 0) AcceptFrom(*doors_[i]);
    }
  }
}

void Listener::Post(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    if (!stopping_) posted_.push_back(std::move(task));
  }
  ::eventfd_write(wake_.get(), 1);
}

bool Listener::RunPosted() {
  eventfd_t count = 0;
  ::eventfd_read(wake_.get(), &count);
  std::vector<std::function<void()>> posted;
  {
    MutexLock lock(mutex_);
    if (stopping_) return false;
    posted.swap(posted_);
  }
  for (const auto& task : posted) task();
  return true;
}

void Listener::AcceptFrom(DoorSocket& door) {
  UniqueFd socket(::accept4(door.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.valid()) {
    if (TakesFromTheReserve(socket.get())) {
      TellLack(socket.get(), door.kind);
      return CloseAccepted(std::move(socket), door.takes_no_descriptors);
    }
    Connection connection = Identify(std::move(socket), door.kind);
    connection.takes_no_descriptors = door.takes_no_descriptors;
    if (connection.socket.valid()) door.handler(std::move(connection));
    return;
  }
  if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
    return;  // the connection has already been closed
  if (RefuseOverflow(door)) return;
  pollfd wake{wake_.get(), POLLIN, 0};  // waits instead of looping; Stop ends the wait
  ::poll(&wake, 1, kNoDescriptorPauseMs);
}

// Closes the spare descriptor to accept the connection, sends the reason for the refusal, and opens a spare one.
bool Listener::RefuseOverflow(DoorSocket& door) {
  spare_.reset();
  UniqueFd socket(::accept4(door.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const bool refused = socket.valid();
  if (refused) TellLack(socket.get(), door.kind);
  CloseAccepted(std::move(socket), door.takes_no_descriptors);
  spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));  // on failure the next overflow cannot be answered
  return refused;
}

}  // namespace arraybridge::daemon
