#include "client/lifeline.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "client/codec.h"

namespace arraybridge {
namespace {

using std::chrono::steady_clock;

// Both peers asleep on two processors cost eight times a round trip in which they spin. Never without yielding: the
// scheduler likes to put both on one processor.
constexpr std::chrono::microseconds kSpin{30};
// A listener whose queue is full is asked again so often.
constexpr int kConnectPauseMs = 5;

int Milliseconds(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

Result<sockaddr_un> AddressOf(const std::string& address) {
  struct stat found {};
  const bool is_directory = ::stat(address.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
  const std::string path = is_directory ? address + "/lifeline.sock" : address;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof name.sun_path) {
    return InvalidArgument("the address has ", path.size(), " bytes; a socket's has 1 to ", sizeof name.sun_path - 1);
  }
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  return name;
}

Status ConnectFailed(int error) {
  if (error == EACCES || error == EPERM) return PermissionDenied("the broker's socket may not be used by this user");
  if (error == EAGAIN) return DeadlineExceeded("the broker accepts no connection in time");
  return Unavailable("no broker answers at the address: ", std::strerror(error));
}

// The peer may have sent more descriptors than this process may open.
Status WhyMalformed() {
  UniqueFd probe(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
  if (!probe.valid() && errno == EMFILE) {
    return ResourceExhausted("a descriptor from the broker did not fit: this process has no more (RLIMIT_NOFILE)");
  }
  return Unavailable("the broker sent a frame that makes no sense");
}

}  // namespace

Result<std::shared_ptr<Lifeline>> Lifeline::Connect(const std::string& address, Deadline deadline) {
  auto name = AddressOf(address);
  if (!name.ok()) return name.status();
  std::shared_ptr<Lifeline> lifeline;
  {
    // A child that inherited the socket without knowing of it would keep the session alive.
    NoForkHere here;
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) return ResourceExhausted("no descriptor left for a connection: ", std::strerror(errno));
    lifeline = std::make_shared<Lifeline>(std::move(socket));
    here.Join(lifeline.get());
  }
  const auto* generic = reinterpret_cast<const sockaddr*>(&*name);
  while (::connect(lifeline->socket_.get(), generic, sizeof *name) != 0) {
    const int error = errno;
    if (error == EINTR) continue;
    if (error != EAGAIN || steady_clock::now() >= deadline) return ConnectFailed(error);
    ::poll(nullptr, 0, kConnectPauseMs);
  }
  return lifeline;
}

Lifeline::Lifeline(UniqueFd socket)
    : socket_(std::move(socket)), buffer_(std::make_unique<std::byte[]>(kFrameBytesMax)) {}

Lifeline::~Lifeline() { LeaveForkGuard(this); }

Result<Answer> Lifeline::Call(Verb verb, std::string_view payload, Deadline deadline, const Late& late) {
  Waiter waiter{.verb = verb};
  auto request = Send(verb, payload, deadline, waiter);
  if (!request.ok()) return request.status();
  return Await(*request, waiter, deadline, late);
}

Status Lifeline::Post(Verb verb, std::string_view payload) {
  if (lost()) return Unavailable("the connection to the broker is lost");
  const FrameHeader header{static_cast<uint16_t>(verb), kFrameNoReply, 0, next_request_.fetch_add(1)};
  return SendFrameUntil(header, payload, steady_clock::now());
}

Status Lifeline::Ask(Verb verb, std::string_view payload, Late late) {
  const FrameHeader header{static_cast<uint16_t>(verb), 0, 0, next_request_.fetch_add(1)};
  {
    MutexLock lock(mutex_);
    if (lost()) return why_lost_;
    if (unawaited_.size() >= kUnawaitedMax) return DeadlineExceeded("the broker has not answered earlier requests");
    unawaited_.emplace(header.request, Unawaited{verb, std::move(late)});
  }
  Status sent = SendFrameUntil(header, payload, steady_clock::now());
  if (sent.ok()) return sent;
  MutexLock lock(mutex_);
  unawaited_.erase(header.request);
  return sent;
}

void Lifeline::ReadArrived() {
  pollfd look{socket_.get(), POLLIN, 0};
  while (!lost() && ::poll(&look, 1, 0) > 0) {
    {
      MutexLock lock(mutex_);
      if (reading_) return;
      reading_ = true;
    }
    Read(steady_clock::now());
  }
}

// Known before it is sent: the answer may come, read by another thread, before send returns.
Result<uint64_t> Lifeline::Send(Verb verb, std::string_view payload, Deadline deadline, Waiter& waiter) {
  const uint64_t request = next_request_.fetch_add(1);
  {
    MutexLock lock(mutex_);
    if (lost()) return Status(Code::kUnavailable, why_lost_.message(), std::string(kNotSent));
    waiting_.emplace(request, &waiter);
  }
  const FrameHeader header{static_cast<uint16_t>(verb), 0, 0, request};
  Status sent = SendFrameUntil(header, payload, deadline);
  if (sent.ok()) return request;
  MutexLock lock(mutex_);
  waiting_.erase(request);
  return sent;
}

Status Lifeline::SendFrameUntil(const FrameHeader& header, std::string_view payload, Deadline deadline) {
  if (payload.size() > kFrameBytesMax - sizeof(FrameHeader)) {
    return InvalidArgument("a request of ", payload.size(), " bytes does not fit into a frame of ", kFrameBytesMax);
  }
  for (;;) {
    switch (SendFrame(socket_.get(), header, payload, -1, false)) {
      case SendOutcome::kSent:
        return Ok();
      case SendOutcome::kAgain:
        break;
      default: {
        MutexLock lock(mutex_);
        Lose(Unavailable("the connection to the broker is lost"));
        return Status(Code::kUnavailable, why_lost_.message(), std::string(kNotSent));
      }
    }
    if (steady_clock::now() >= deadline) return DeadlineExceeded("the broker takes no request in time");
    pollfd wait{socket_.get(), POLLOUT, 0};
    ::poll(&wait, 1, Milliseconds(deadline));
  }
}

Result<Answer> Lifeline::Await(uint64_t request, Waiter& waiter, Deadline deadline, const Late& late) {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (waiter.done) return std::move(waiter.answer);
      if (lost()) return waiting_.erase(request), why_lost_;
      if (steady_clock::now() >= deadline) return GiveUp(request, waiter, late);
      if (reading_) {
        ++followers_;
        changed_.WaitUntil(mutex_, deadline);
        --followers_;
        continue;
      }
      reading_ = true;
    }
    Read(deadline);
  }
}

Status Lifeline::GiveUp(uint64_t request, const Waiter& waiter, const Late& late) {
  waiting_.erase(request);
  unawaited_.emplace(request, Unawaited{waiter.verb, late});
  if (unawaited_.size() > kUnawaitedMax) Lose(Unavailable("the broker left ", kUnawaitedMax, " requests unanswered"));
  return DeadlineExceeded("the broker did not answer in time");
}

void Lifeline::Read(Deadline deadline) {
  Frame frame;
  const ReceiveOutcome outcome = Receive(deadline, frame);
  Dispatch(outcome, frame);
}

ReceiveOutcome Lifeline::Receive(Deadline deadline, Frame& frame) {
  const std::span<std::byte> buffer(buffer_.get(), kFrameBytesMax);
  const Deadline spin_until = std::min(deadline, steady_clock::now() + kSpin);
  for (;;) {
    const ReceiveOutcome outcome = ReceiveFrame(socket_.get(), buffer, false, &frame);
    if (outcome != ReceiveOutcome::kAgain) return outcome;
    const auto now = steady_clock::now();
    if (now >= deadline) return outcome;
    if (now < spin_until) {
      ::sched_yield();
      continue;
    }
    pollfd wait{socket_.get(), POLLIN, 0};
    ::poll(&wait, 1, Milliseconds(deadline));
  }
}

void Lifeline::Dispatch(ReceiveOutcome outcome, Frame& frame) {
  std::vector<LateAnswer> late;
  {
    MutexLock lock(mutex_);
    if (outcome == ReceiveOutcome::kClosed) Lose(Unavailable("the broker has closed the connection"));
    if (outcome == ReceiveOutcome::kMalformed) Lose(WhyMalformed());
    if (outcome == ReceiveOutcome::kFrame) Deliver(frame, late);
    if (late.empty()) return EndRead();
  }
  for (LateAnswer& one : late) {
    if (one.late) one.late(std::move(one.answer));
  }
  MutexLock lock(mutex_);
  EndRead();
}

void Lifeline::EndRead() {
  reading_ = false;
  if (followers_ > 0) changed_.NotifyAll();
}

void Lifeline::Deliver(Frame& frame, std::vector<LateAnswer>& late) {
  const FrameHeader& header = frame.header;
  if ((header.flags & kFrameMemoryWanted) != 0) memory_wanted_.store(true, std::memory_order_relaxed);
  Result<Answer> answer = Answer{std::string(frame.payload), std::move(frame.descriptor)};
  if (header.status != 0) answer = codec::DecodeError(header.status, frame.payload);
  if (const auto found = waiting_.find(header.request); found != waiting_.end()) {
    Waiter& waiter = *found->second;
    if (static_cast<uint16_t>(waiter.verb) != header.verb) {
      return Lose(Unavailable("the broker answered another request than was asked"));
    }
    waiter.answer = std::move(answer);
    waiter.done = true;
    waiting_.erase(found);
    return;
  }
  const auto found = unawaited_.find(header.request);
  if (found == unawaited_.end() || static_cast<uint16_t>(found->second.verb) != header.verb) {
    return Lose(Unavailable("the broker answered a request that nobody made"));
  }
  late.push_back({std::move(found->second.late), std::move(answer)});
  unawaited_.erase(found);
}

void Lifeline::Lose(Status why) {
  if (lost()) return;
  why_lost_ = std::move(why);
  is_lost_.store(true, std::memory_order_release);
  unawaited_.clear();
  // The session ends now, not when the last array of it has gone. Closed later: another thread may be polling it.
  ::shutdown(socket_.get(), SHUT_RDWR);
  changed_.NotifyAll();
}

}  // namespace arraybridge
