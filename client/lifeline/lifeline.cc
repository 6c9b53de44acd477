// SPDX-License-Identifier: Apache-2.0
#include "client/lifeline/lifeline.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "client/process/coarse_clock.h"
#include "client/process/descriptor_limit.h"
#include "client/wire/codec.h"

namespace arraybridge {
namespace {

using std::chrono::steady_clock;

// The interval between attempts to connect to a listener whose queue is full.
constexpr int kConnectPauseMs = 5;

Result<sockaddr_un> AddressOf(const std::string& address) {
  struct stat found {};
  const bool is_directory = ::stat(address.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
  const std::string path = is_directory ? address + "/lifeline.sock" : address;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof name.sun_path || path.find("://") != std::string::npos) {
    return InvalidArgument("'", address, "' is no directory or path of 1 to ", sizeof name.sun_path - 1, " bytes");
  }
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  return name;
}

Status ConnectFailed(const std::string& address, int error) {
  if (error == EACCES || error == EPERM) return PermissionDenied("the broker's socket may not be used by this user");
  if (error == EAGAIN) return DeadlineExceeded("the broker did not accept the connection in time");
  return Unavailable("no broker answers at '", address, "': ", std::strerror(error),
                     "; arraybridged --directory DIR starts one for $ARRAYBRIDGE_ADDRESS=DIR");
}

// A process may have closed its standard descriptors. Output that it writes to them must not reach the broker.
UniqueFd AboveStandard(UniqueFd socket) {
  if (!socket.valid() || socket.get() > STDERR_FILENO) return socket;
  return UniqueFd(::fcntl(socket.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

bool OneProcessor() {
  cpu_set_t allowed;
  return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) == 1;
}

// Not a secret. It only keeps an error of another connection or process from being mistaken for one of this connection.
uint64_t Nonce() {
  const auto now = static_cast<uint64_t>(steady_clock::now().time_since_epoch().count());
  return (now << 20) ^ static_cast<uint64_t>(::getpid());
}

}  // namespace

Result<std::shared_ptr<Lifeline>> Lifeline::Connect(const std::string& address, Deadline deadline,
                                                    Interrupted interrupted, std::chrono::microseconds spin) {
  AB_ASSIGN_OR_RETURN(auto name, AddressOf(address));
  std::shared_ptr<Lifeline> lifeline;
  {
    // No fork until the socket is registered. A child that inherited it unknowingly would keep the session alive.
    NoForkHere here;
    UniqueFd socket = AboveStandard(UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    if (!socket.valid()) return NoDescriptor("a connection to the broker", errno);
    lifeline = std::make_shared<Lifeline>(std::move(socket), std::move(interrupted), spin);
    here.Join(lifeline.get());
  }
  const auto* generic = reinterpret_cast<const sockaddr*>(&name);
  while (::connect(lifeline->socket_.get(), generic, sizeof name) != 0) {
    const int error = errno;
    if (error == EINTR) continue;
    if (error != EAGAIN || steady_clock::now() >= deadline) return ConnectFailed(address, error);
    if (lifeline->interrupted_ && lifeline->interrupted_()) return Cancelled();
    ::poll(nullptr, 0, kConnectPauseMs);
  }
  // The socket becomes blocking; from here on each call states whether it waits.
  ::fcntl(lifeline->socket_.get(), F_SETFL, 0);
  return lifeline;
}

Lifeline::Lifeline(UniqueFd socket, Interrupted interrupted, std::chrono::microseconds spin)
    : socket_(std::move(socket)),
      nonce_(Nonce()),
      interrupted_(std::move(interrupted)),
      spin_(spin),
      alone_(OneProcessor()),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kFrameBytesMax)) {
  const timeval step{0, std::chrono::microseconds(kBlock).count()};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &step, sizeof step);
}

Lifeline::~Lifeline() { LeaveForkGuard(this); }

Result<Answer> Lifeline::Call(Verb verb, std::string_view payload, Deadline deadline,
                              const CompletionHandler& handler) {
  Waiter waiter{.header = HeaderOf(verb, deadline), .payload = payload};
  if (verb == Verb::kAllocate) waiter.patience = deadline - steady_clock::now();
  try {
    return CallOf(waiter, payload, deadline, handler);
  } catch (const std::bad_alloc&) {
    MutexLock lock(mutex_);
    TakeWaiter(waiter.header.request);
    throw;
  }
}

Result<Answer> Lifeline::CallOf(Waiter& waiter, std::string_view payload, Deadline deadline,
                                const CompletionHandler& handler) {
  QueuePages* const queue = queue_.load(std::memory_order_acquire);
  auto answer = queue != nullptr ? CallByQueue(*queue, waiter, payload, deadline, handler)
                                 : CallByFrame(waiter, payload, deadline, handler);
  // Handles late answers to earlier requests before this answer is returned.
  if (has_late_.load(std::memory_order_relaxed) || has_frame_.load(std::memory_order_relaxed)) ReadArrived();
  return answer;
}

Result<Answer> Lifeline::CallByFrame(Waiter& waiter, std::string_view payload, Deadline deadline,
                                     const CompletionHandler& handler) {
  CountCall();
  MutexLock lock(mutex_);
  AB_RETURN_IF_ERROR(SendFrameUntil(waiter.header, payload, deadline));
  waiter.next = std::exchange(waiting_, &waiter);
  return Await(waiter, deadline, handler);
}

FrameHeader Lifeline::HeaderOf(Verb verb, Deadline deadline) {
  FrameHeader header{static_cast<uint16_t>(verb), 0, 0, next_request_.fetch_add(1, std::memory_order_relaxed)};
  if (verb == Verb::kAllocate) header.flags |= kFrameProgress;
  if (!broker_ahead_ || IsServedLate(verb)) return header;
  if (deadline - CoarseNow() > std::chrono::milliseconds(kFrameDeadlineMaxMs)) return header;
  const auto broker_time = deadline.time_since_epoch() + *broker_ahead_;
  header.status = DeadlineOnWire(std::chrono::floor<std::chrono::milliseconds>(broker_time).count());
  header.flags |= kFrameDeadline;
  return header;
}

Status Lifeline::Post(Verb verb, std::string_view payload, std::optional<Deadline> deadline,
                      CompletionHandler handler) {
  const FrameHeader header{static_cast<uint16_t>(verb), kFrameNoReply, 0, next_request_.fetch_add(1)};
  QueuePages* const queue = queue_.load(std::memory_order_acquire);
  if (queue == nullptr || payload.size() > session_queue::Format::kPayloadBytesMax) {
    try {
      return AskUntil(verb, payload, std::move(handler), deadline);
    } catch (const std::bad_alloc&) {
      // Destructors call Post. Without memory the request wants no answer, and only a daemon that dies now loses it.
      const MutexLock lock(mutex_);
      return SendFrameUntil(header, payload, deadline);
    }
  }
  return Submit(*queue, {header, 0, payload, deadline, nullptr}).status();
}

Status Lifeline::Ask(Verb verb, std::string_view payload, CompletionHandler handler) {
  return AskUntil(verb, payload, std::move(handler), std::nullopt);
}

Status Lifeline::AskUntil(Verb verb, std::string_view payload, CompletionHandler handler,
                          std::optional<Deadline> deadline) {
  if (payload.size() > kFrameBytesMax - sizeof(FrameHeader)) return TooLarge(payload.size());
  const FrameHeader header{static_cast<uint16_t>(verb), 0, 0, next_request_.fetch_add(1)};
  {
    const MutexLock lock(mutex_);
    ReadUnread();
    if (lost()) return why_lost_;
    if (unawaited_.size() >= kUnawaitedMax) return DeadlineExceeded("the broker has not answered earlier requests");
    unawaited_.emplace(header.request,
                       Unawaited{.verb = verb, .handler = std::move(handler), .payload = std::string(payload)});
  }
  Status sent = SendUnawaited(header, payload, deadline);
  if (sent.ok()) return sent;
  const MutexLock lock(mutex_);
  unawaited_.erase(header.request);
  return sent;
}

// Once the queue exists, requests go through it, so that they cannot overtake a frame.
Status Lifeline::SendUnawaited(const FrameHeader& header, std::string_view payload, std::optional<Deadline> deadline) {
  {
    const MutexLock lock(mutex_);
    while (!has_queue()) {
      AB_ASSIGN_OR_RETURN(const auto sent, TrySend(header, payload));
      if (sent) return NoteSent(header.request), Ok();
      AB_RETURN_IF_ERROR(AwaitWritable(deadline));
    }
  }
  QueuePages* const queue = queue_.load(std::memory_order_acquire);
  if (queue == nullptr) return Unavailable("the connection to the broker is lost");  // in a forked child
  return Submit(*queue, {header, 0, payload, deadline, nullptr}).status();
}

void Lifeline::NoteSent(uint64_t request) {
  const auto found = unawaited_.find(request);
  if (found != unawaited_.end()) found->second.sent = true;
}

void Lifeline::ReadUnread() {
  const auto has_frame = [this] {
    pollfd look{socket_.get(), POLLIN, 0};
    return ::poll(&look, 1, 0) > 0;
  };
  const auto is_idle = [this]()
                           AB_REQUIRES(mutex_) { return waiting_ == nullptr && !reading_ && !handling_ && !lost(); };
  while (unawaited_.size() >= kUnreadMax && is_idle() && has_frame()) {
    Read(Deadline{}, false);  // in the past, so it does not wait
  }
}

bool Lifeline::alive() {
  if (lost()) return false;
  const int64_t now = CoarseNow().time_since_epoch().count();
  if (last_look_.load(std::memory_order_relaxed) == now) return true;
  last_look_.store(now, std::memory_order_relaxed);
  pollfd look{socket_.get(), 0, 0};  // POLLHUP and POLLERR only
  if (::poll(&look, 1, 0) <= 0) return true;
  ReadArrived();
  return false;
}

void Lifeline::ReadArrived() {
  has_frame_.store(false);
  pollfd look{socket_.get(), POLLIN, 0};
  while (!lost() && ::poll(&look, 1, 0) > 0) {
    MutexLock lock(mutex_);
    if (reading_) return;
    Read(Deadline{}, false);  // in the past, so it does not wait
    RunHandlers();
  }
  QueuePages* const queue = queue_.load(std::memory_order_acquire);
  if (queue == nullptr || !(queue->completions.HasEntry() || has_late_.load())) return;
  MutexLock lock(mutex_);
  Reap(*queue);
  RunHandlers();
}

Status Lifeline::TooLarge(size_t bytes) {
  return InvalidArgument("a request of ", bytes, " bytes does not fit into a frame of ", kFrameBytesMax)
      .Because("TOO_LARGE");
}

Status Lifeline::AwaitWritable(std::optional<Deadline> deadline) {
  if (!deadline || steady_clock::now() >= *deadline) {
    return DeadlineExceeded("the broker did not take the request in time");
  }
  mutex_.unlock();
  pollfd wait{socket_.get(), POLLOUT, 0};
  const bool not_writable = ::poll(&wait, 1, Milliseconds(Step(*deadline))) <= 0;
  const bool is_interrupted = not_writable && interrupted_ && interrupted_();
  mutex_.lock();
  return is_interrupted ? Cancelled() : Ok();
}

Result<bool> Lifeline::TrySend(const FrameHeader& header, std::string_view payload) {
  if (!lost()) {
    const SendOutcome sent = SendFrame(socket_.get(), header, payload, -1, false);
    if (sent == SendOutcome::kSent) return true;
    if (sent == SendOutcome::kAgain) return false;
    LoseByBroker(Unavailable("the connection to the broker is lost"));
  }
  return Status(Code::kUnavailable, why_lost_.message(), std::string(kNotSent));
}

Status Lifeline::SendFrameUntil(const FrameHeader& header, std::string_view payload, std::optional<Deadline> deadline) {
  if (payload.size() > kFrameBytesMax - sizeof(FrameHeader)) return TooLarge(payload.size());
  for (;;) {
    AB_ASSIGN_OR_RETURN(const auto sent, TrySend(header, payload));
    if (sent) return Ok();
    AB_RETURN_IF_ERROR(AwaitWritable(deadline));
  }
}

void Lifeline::LoseByBroker(Status why) {
  // Delivers the answers that the broker wrote before it ended.
  if (QueuePages* const queue = queue_.load(std::memory_order_acquire)) Reap(*queue);
  if (lost()) return;
  lost_by_broker_ = true;
  Lose(std::move(why));
}

void Lifeline::Lose(Status why) {
  if (lost()) return;
  why_lost_ = std::move(why);
  is_lost_.store(true, std::memory_order_release);
  unawaited_.clear();
  // The session must end now, not when its last array is dropped. The descriptor is closed later, because another
  // thread may be polling it.
  ::shutdown(socket_.get(), SHUT_RDWR);
  changed_.NotifyAll();
}

}  // namespace arraybridge
