#include "client/lifeline.h"

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
#include <optional>
#include <utility>

#include "client/coarse_clock.h"
#include "client/codec.h"

namespace arraybridge {
namespace {

using std::chrono::steady_clock;

constexpr unsigned kSpinsPerLook = 8;  // at the clock
// So often a waiting thread looks whether it is interrupted. On one processor recvmsg itself waits, in steps of this;
// it returns early enough for the deadline to be kept.
constexpr std::chrono::milliseconds kBlock{100};
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

// A process may have closed its standard descriptors. What it tells them must not go to the broker.
UniqueFd AboveStandard(UniqueFd socket) {
  if (!socket.valid() || socket.get() > STDERR_FILENO) return socket;
  return UniqueFd(::fcntl(socket.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

bool OneProcessor() {
  cpu_set_t allowed;
  return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) == 1;
}

Status Cancelled() { return Status(Code::kCancelled, "interrupted while waiting for the broker"); }

// The peer may have sent more descriptors than this process may open.
Status WhyMalformed() {
  UniqueFd probe(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
  if (!probe.valid() && errno == EMFILE) {
    return ResourceExhausted("a descriptor from the broker did not fit: this process has no more (RLIMIT_NOFILE)");
  }
  return Unavailable("the broker sent a frame that makes no sense");
}

}  // namespace

Result<std::shared_ptr<Lifeline>> Lifeline::Connect(const std::string& address, Deadline deadline,
                                                    Interrupted interrupted, std::chrono::microseconds spin) {
  auto name = AddressOf(address);
  if (!name.ok()) return name.status();
  std::shared_ptr<Lifeline> lifeline;
  {
    // A child that inherited the socket without knowing of it would keep the session alive.
    NoForkHere here;
    UniqueFd socket = AboveStandard(UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    if (!socket.valid()) return ResourceExhausted("no descriptor left for a connection: ", std::strerror(errno));
    lifeline = std::make_shared<Lifeline>(std::move(socket), std::move(interrupted), spin);
    here.Join(lifeline.get());
  }
  const auto* generic = reinterpret_cast<const sockaddr*>(&*name);
  while (::connect(lifeline->socket_.get(), generic, sizeof *name) != 0) {
    const int error = errno;
    if (error == EINTR) continue;
    if (error != EAGAIN || steady_clock::now() >= deadline) return ConnectFailed(error);
    if (lifeline->interrupted_ && lifeline->interrupted_()) return Cancelled();
    ::poll(nullptr, 0, kConnectPauseMs);
  }
  // From here on each call says whether it waits.
  if (lifeline->alone_) ::fcntl(lifeline->socket_.get(), F_SETFL, 0);
  return lifeline;
}

Lifeline::Lifeline(UniqueFd socket, Interrupted interrupted, std::chrono::microseconds spin)
    : socket_(std::move(socket)),
      interrupted_(std::move(interrupted)),
      spin_(spin),
      alone_(OneProcessor()),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kFrameBytesMax)) {
  if (!alone_) return;
  const timeval step{0, std::chrono::microseconds(kBlock).count()};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &step, sizeof step);
}

Lifeline::~Lifeline() { LeaveForkGuard(this); }

Result<Answer> Lifeline::Call(Verb verb, std::string_view payload, Deadline deadline, const Late& late) {
  Waiter waiter{.verb = verb, .request = next_request_.fetch_add(1, std::memory_order_relaxed)};
  const auto in_order = Enter(waiter);
  if (!in_order.ok()) return in_order.status();
  OwnMailbox* const mailbox = mailbox_.load(std::memory_order_acquire);
  if (mailbox != nullptr && *in_order && mailbox->Take(waiter.request, payload.size())) {
    return CallByMailbox(*mailbox, waiter, payload, deadline, late);
  }
  const uint64_t posted = posted_.load();
  AB_RETURN_IF_ERROR(Send(waiter, payload, deadline, mailbox == nullptr ? 0 : mailbox->FlagsBySocket(*in_order)));
  if (mailbox_offered_.load(std::memory_order_relaxed)) AskForMailbox();
  MutexLock lock(mutex_);
  auto answer = Await(waiter, deadline, late);
  if (waiter.answer) posted_seen_ = std::max(posted_seen_, posted);
  return answer;
}

Status Lifeline::Post(Verb verb, std::string_view payload) {
  if (lost()) return Unavailable("the connection to the broker is lost");
  const FrameHeader header{static_cast<uint16_t>(verb), kFrameNoReply, 0, next_request_.fetch_add(1)};
  Status sent = SendFrameUntil(header, payload, std::nullopt);
  // Afterwards: who calls by the socket meanwhile has not seen it served.
  if (sent.ok()) posted_.fetch_add(1);
  return sent;
}

Status Lifeline::Ask(Verb verb, std::string_view payload, Late late) {
  const OwnMailbox* const mailbox = mailbox_.load(std::memory_order_acquire);
  const uint16_t flags = mailbox == nullptr ? uint16_t{0} : mailbox->FlagsBeside();
  const FrameHeader header{static_cast<uint16_t>(verb), flags, 0, next_request_.fetch_add(1)};
  {
    MutexLock lock(mutex_);
    if (lost()) return why_lost_;
    if (unawaited_.size() >= kUnawaitedMax) return DeadlineExceeded("the broker has not answered earlier requests");
    unawaited_.emplace(header.request, Unawaited{verb, std::move(late)});
  }
  Status sent = SendFrameUntil(header, payload, std::nullopt);
  if (sent.ok()) return sent;
  MutexLock lock(mutex_);
  unawaited_.erase(header.request);
  return sent;
}

bool Lifeline::alive() {
  if (lost()) return false;
  const int64_t now = CoarseNow().time_since_epoch().count();
  if (last_look_.load(std::memory_order_relaxed) == now) return true;
  last_look_.store(now, std::memory_order_relaxed);
  pollfd look{socket_.get(), 0, 0};  // the end of the stream alone
  if (::poll(&look, 1, 0) <= 0) return true;
  ReadArrived();
  return false;
}

void Lifeline::ReadArrived() {
  pollfd look{socket_.get(), POLLIN, 0};
  while (!lost() && ::poll(&look, 1, 0) > 0) {
    MutexLock lock(mutex_);
    if (reading_) return;
    Read(Deadline{});  // long past: nothing is waited for
  }
}

// Answers that nobody waits for are read by whoever asks by the socket.
Result<bool> Lifeline::Enter(Waiter& waiter) {
  MutexLock lock(mutex_);
  if (lost()) return Status(Code::kUnavailable, why_lost_.message(), std::string(kNotSent));
  waiter.next = std::exchange(waiting_, &waiter);
  return unawaited_.empty() && posted_seen_ == posted_.load(std::memory_order_relaxed);
}

Status Lifeline::Send(Waiter& waiter, std::string_view payload, Deadline deadline, uint16_t flags) {
  const FrameHeader header{static_cast<uint16_t>(waiter.verb), flags, 0, waiter.request};
  Status sent = SendFrameUntil(header, payload, deadline);
  if (sent.ok()) return sent;
  MutexLock lock(mutex_);
  TakeWaiter(waiter.request);
  return sent;
}

Status Lifeline::SendFrameUntil(const FrameHeader& header, std::string_view payload, std::optional<Deadline> deadline) {
  if (payload.size() > kFrameBytesMax - sizeof(FrameHeader)) {
    return InvalidArgument("a request of ", payload.size(), " bytes does not fit into a frame of ", kFrameBytesMax)
        .Because("TOO_LARGE");
  }
  for (;;) {
    switch (SendFrame(socket_.get(), header, payload, -1, false)) {
      case SendOutcome::kSent:
        return Ok();
      case SendOutcome::kAgain:
        break;
      default: {
        MutexLock lock(mutex_);
        LoseByBroker(Unavailable("the connection to the broker is lost"));
        return Status(Code::kUnavailable, why_lost_.message(), std::string(kNotSent));
      }
    }
    if (!deadline || steady_clock::now() >= *deadline) return DeadlineExceeded("the broker takes no request in time");
    pollfd wait{socket_.get(), POLLOUT, 0};
    if (::poll(&wait, 1, Milliseconds(Step(*deadline))) <= 0 && interrupted_ && interrupted_()) return Cancelled();
  }
}

Result<Answer> Lifeline::Await(Waiter& waiter, Deadline deadline, const Late& late) {
  std::optional<Deadline> look;  // when to ask whether this thread is interrupted
  for (bool first = true; !waiter.answer; first = false) {
    if (lost()) return TakeWaiter(waiter.request), why_lost_;
    // Not before the first look: most answers come long before any deadline, and a clock has its price.
    const auto now = first ? Deadline::min() : steady_clock::now();
    if (now >= deadline) return GiveUp(waiter, late, DeadlineExceeded("the broker did not answer in time"));
    if (!first && !look) look = now + kBlock;
    if (!first && now >= *look) {
      look.reset();
      if (IsInterrupted() && !waiter.answer) return GiveUp(waiter, late, Cancelled());
      continue;
    }
    if (!reading_) {
      Read(deadline);
      continue;
    }
    ++followers_;
    changed_.WaitUntil(mutex_, Step(deadline));
    --followers_;
  }
  return *std::move(waiter.answer);
}

bool Lifeline::IsInterrupted() {
  if (!interrupted_) return false;
  mutex_.unlock();
  const bool is_interrupted = interrupted_();
  mutex_.lock();
  return is_interrupted;
}

Deadline Lifeline::Step(Deadline deadline) const {
  return interrupted_ ? std::min(deadline, steady_clock::now() + kBlock) : deadline;
}

Status Lifeline::GiveUp(Waiter& waiter, const Late& late, Status why) {
  TakeWaiter(waiter.request);
  unawaited_.emplace(waiter.request, Unawaited{waiter.verb, late});
  if (unawaited_.size() > kUnawaitedMax) Lose(Unavailable("the broker left ", kUnawaitedMax, " requests unanswered"));
  return std::move(why).Because(std::string(kUnanswered));
}

void Lifeline::Read(Deadline deadline) {
  reading_ = true;
  mutex_.unlock();
  Frame frame;
  const ReceiveOutcome outcome = alone_ ? ReceiveAlone(deadline, frame) : Receive(deadline, frame);
  mutex_.lock();
  Dispatch(outcome, frame);
  reading_ = false;
  if (followers_ > 0) changed_.NotifyAll();
}

ReceiveOutcome Lifeline::Receive(Deadline deadline, Frame& frame) {
  const std::span<std::byte> buffer(buffer_.get(), kFrameBytesMax);
  std::optional<Deadline> spin_until;
  for (unsigned turn = 1;; ++turn) {
    const ReceiveOutcome outcome = ReceiveFrame(socket_.get(), buffer, false, &frame);
    if (outcome != ReceiveOutcome::kAgain) return outcome;
    if (turn % kSpinsPerLook != 1) {
      ::sched_yield();
      continue;
    }
    const auto now = steady_clock::now();
    if (now >= deadline) return outcome;
    if (!spin_until) spin_until = now + spin_;
    if (now < *spin_until) {
      ::sched_yield();
      continue;
    }
    pollfd wait{socket_.get(), POLLIN, 0};
    if (::poll(&wait, 1, Milliseconds(Step(deadline))) <= 0 && interrupted_) return outcome;
  }
}

ReceiveOutcome Lifeline::ReceiveAlone(Deadline deadline, Frame& frame) {
  const std::span<std::byte> buffer(buffer_.get(), kFrameBytesMax);
  for (;;) {
    const bool far = deadline - (kBlock + kCoarseTick) > CoarseNow();
    const ReceiveOutcome outcome = ReceiveFrame(socket_.get(), buffer, far, &frame);
    if (outcome != ReceiveOutcome::kAgain) return outcome;
    if (far && interrupted_) return outcome;
    if (far) continue;
    if (steady_clock::now() >= deadline) return outcome;
    pollfd wait{socket_.get(), POLLIN, 0};
    ::poll(&wait, 1, Milliseconds(deadline));
  }
}

void Lifeline::Dispatch(ReceiveOutcome outcome, Frame& frame) {
  std::optional<LateAnswer> late;
  if (outcome == ReceiveOutcome::kClosed) LoseByBroker(Unavailable("the broker has closed the connection"));
  if (outcome == ReceiveOutcome::kMalformed) Lose(WhyMalformed());
  if (outcome == ReceiveOutcome::kFrame) Deliver(frame, late);
  if (!late || !late->late) return;
  mutex_.unlock();
  late->late(std::move(late->answer));
  mutex_.lock();
}

Lifeline::Waiter* Lifeline::TakeWaiter(uint64_t request) {
  for (Waiter** at = &waiting_; *at != nullptr; at = &(*at)->next) {
    if ((*at)->request == request) return std::exchange(*at, (*at)->next);
  }
  return nullptr;
}

void Lifeline::Deliver(Frame& frame, std::optional<LateAnswer>& late) {
  const FrameHeader& header = frame.header;
  const auto answer = [&] { return AnswerOf(header, std::string(frame.payload), std::move(frame.descriptor)); };
  if (Waiter* const waiter = TakeWaiter(header.request)) {
    if (static_cast<uint16_t>(waiter->verb) == header.verb) return void(waiter->answer.emplace(answer()));
    waiter->next = std::exchange(waiting_, waiter);  // learns that the connection is lost
    return Lose(Unavailable("the broker answered another request than was asked"));
  }
  const auto found = unawaited_.find(header.request);
  if (found == unawaited_.end() || static_cast<uint16_t>(found->second.verb) != header.verb) {
    return Lose(Unavailable("the broker answered a request that nobody made"));
  }
  late = LateAnswer{std::move(found->second.late), answer()};
  unawaited_.erase(found);
}

Result<Answer> Lifeline::AnswerOf(const FrameHeader& header, std::string payload, UniqueFd descriptor) {
  if ((header.flags & kFrameMemoryWanted) != 0) memory_wanted_.store(true, std::memory_order_relaxed);
  if (header.status != 0) return codec::DecodeError(header.status, payload);
  return Answer{std::move(payload), std::move(descriptor)};
}

void Lifeline::LoseByBroker(Status why) {
  if (lost()) return;
  lost_by_broker_ = true;
  Lose(std::move(why));
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
