// SPDX-License-Identifier: Apache-2.0
// Reading answers: any waiting thread reads for all threads until its own answer has arrived.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "client/lifeline/lifeline.h"
#include "client/process/coarse_clock.h"
#include "client/process/descriptor_limit.h"
#include "client/wire/codec.h"

namespace arraybridge {
namespace {

using std::chrono::steady_clock;

constexpr auto kSendAgain = std::chrono::seconds(10);  // for all requests together: a destructor may be waiting
constexpr unsigned kSpinsPerClockRead = 8;             // spins between two reads of the clock

// True if the request changes what other clients find.
bool ChangesWhatOthersFind(Verb verb) { return verb == Verb::kPublish || verb == Verb::kWithdraw; }

// One cause is that the broker sent more descriptors than this process may open.
Status WhyMalformed() {
  UniqueFd probe(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
  if (!probe.valid() && errno == EMFILE) return NoDescriptor("the memory that the broker sent", errno);
  return Unavailable("the broker sent a malformed frame");
}

}  // namespace

Status Lifeline::Cancelled() { return Status(Code::kCancelled, "interrupted while waiting for the broker"); }

int Lifeline::Milliseconds(Deadline deadline) {
  return static_cast<int>(TimeUntil(deadline, std::chrono::milliseconds(1 << 30)).count());
}

Result<Answer> Lifeline::Await(Waiter& waiter, Deadline deadline, const CompletionHandler& handler) {
  Status waited = ReadUntil(deadline, [&] {
    if (std::exchange(waiter.advanced, false) && waiter.patience) {
      deadline = std::max(deadline, steady_clock::now() + *waiter.patience);
    }
    return waiter.answer.has_value();
  });
  if (waiter.answer) return *std::move(waiter.answer);
  if (lost()) return TakeWaiter(waiter.header.request), why_lost_;
  return GiveUp(waiter, handler, std::move(waited));
}

Status Lifeline::AwaitLate(uint64_t request, Deadline deadline) {
  MutexLock lock(mutex_);
  return ReadUntil(deadline, [this, request]() AB_REQUIRES(mutex_) { return !unawaited_.contains(request); });
}

template <class IsOver>
Status Lifeline::ReadUntil(const Deadline& deadline, const IsOver& is_over) {
  constexpr Deadline kNever = Deadline::max();
  Deadline look = kNever;  // when to check whether this thread is interrupted
  for (bool first = true; !is_over() && !lost(); first = false) {
    // The clock is read only after the first attempt, because most answers arrive long before a deadline and reading
    // the clock is not free.
    const auto now = first ? Deadline::min() : steady_clock::now();
    if (now >= deadline) return Status(Code::kDeadlineExceeded, {});
    if (!first && look == kNever) look = now + kBlock;
    if (!first && now >= look) {
      look = kNever;
      if (IsInterrupted() && !is_over()) return Cancelled();
      continue;
    }
    if (!reading_ && !handling_) {
      QueuePages* const queue = queue_.load(std::memory_order_acquire);
      if (queue == nullptr || MaySleep(*queue)) Read(deadline, queue == nullptr);
      RunHandlers();
      continue;
    }
    ++followers_;
    changed_.WaitUntil(mutex_, Step(deadline));
    --followers_;
  }
  return Ok();
}

Status Lifeline::ReadUntilFreeSlots(QueuePages& queue, uint64_t slots, Deadline deadline) {
  return ReadUntil(deadline, [&] { return queue_.load() != &queue || queue.requests.MayHaveRoom(slots); });
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

Status Lifeline::GiveUp(Waiter& waiter, const CompletionHandler& handler, Status why) {
  TakeWaiter(waiter.header.request);
  unawaited_.emplace(waiter.header.request,
                     Unawaited{.verb = waiter.verb(), .handler = handler, .given_up = true, .sent = true});
  if (unawaited_.size() > kUnawaitedMax) Lose(Unavailable("the broker left ", kUnawaitedMax, " requests unanswered"));
  const bool changes = ChangesWhatOthersFind(waiter.verb());
  if (why.code() == Code::kDeadlineExceeded) {
    why = DeadlineExceeded("the broker did not answer ", NameOf(waiter.verb()), " in time",
                           waiter.patience ? " and reported no progress" : "",
                           ": it is stopped, busy or hangs; a larger timeout_s= waits longer",
                           changes ? "; outcome() of this error returns its result" : "");
  }
  why = std::move(why).Because(std::string(kUnanswered));
  if (!changes) return why;
  return std::move(why).With(std::string(kRequestKey), Concat(nonce_, "/", waiter.header.request));
}

void Lifeline::Read(Deadline deadline, bool spin) {
  reading_ = true;
  mutex_.unlock();
  Frame frame;
  auto outcome = ReceiveOutcome::kMalformed;  // also if there is no memory for its descriptors
  try {
    outcome = Receive(deadline, spin && !alone_, frame);
  } catch (const std::bad_alloc&) {
  }
  mutex_.lock();
  // Marks this side as awake before it delivers, so that later completions send no doorbell.
  try {
    if (QueuePages* const queue = queue_.load(std::memory_order_acquire)) {
      queue->doorbell.Wake();
      Reap(*queue);
    }
    Dispatch(outcome, frame);
  } catch (const std::bad_alloc&) {
    Lose(NoMemory());
  }
  reading_ = false;
  if (followers_ > 0) changed_.NotifyAll();
}

// recvmsg blocks for kBlock at most (SO_RCVTIMEO); poll waits for a deadline that is nearer.
ReceiveOutcome Lifeline::Receive(Deadline deadline, bool spin, Frame& frame) {
  const std::span<std::byte> buffer(buffer_.get(), kFrameBytesMax);
  std::optional<Deadline> spin_until;
  for (unsigned turn = 1; spin; ++turn) {
    const ReceiveOutcome outcome = ReceiveFrame(socket_.get(), buffer, false, &frame);
    if (outcome != ReceiveOutcome::kAgain) return outcome;
    if (turn % kSpinsPerClockRead == 1) {
      const auto now = steady_clock::now();
      if (now >= deadline) return outcome;
      if (!spin_until) spin_until = now + spin_;
      if (now >= *spin_until) break;
    }
    ::sched_yield();
  }
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
  if (outcome == ReceiveOutcome::kClosed) LoseByBroker(Unavailable("the broker has closed the connection"));
  if (outcome == ReceiveOutcome::kMalformed) Lose(WhyMalformed());
  if (outcome != ReceiveOutcome::kFrame) return;
  if (frame.header.verb == static_cast<uint16_t>(Verb::kRecovered)) return Resume(frame.header.request);
  const bool is_doorbell = has_queue() && frame.header.verb == static_cast<uint16_t>(Verb::kDoorbell);
  if (!is_doorbell) Deliver(frame);
}

// Answers that the other daemon wrote have been read: those on the socket precede its successor's frame, and the queue
// was reaped. A request of a caller that has given up is not served any more, but its outcome becomes known. The order
// of the requests is kept, because a later one may need an earlier one: Publish needs Mapped.
void Lifeline::Resume(uint64_t number) {
  continued_.fetch_add(1, std::memory_order_relaxed);
  struct Unanswered {
    FrameHeader header;
    std::string_view payload;
  };
  std::vector<Unanswered> unanswered;
  for (const Waiter* waiter = waiting_; waiter != nullptr; waiter = waiter->next) {
    unanswered.push_back({waiter->header, waiter->payload});
  }
  for (const auto& [request, of] : unawaited_) {
    if (of.arrived || !of.sent) continue;
    const uint16_t flags = of.given_up ? kFrameOutcome : 0;
    unanswered.push_back({{static_cast<uint16_t>(of.verb), flags, 0, request}, of.payload});
  }
  std::ranges::sort(unanswered, {}, [](const Unanswered& one) { return one.header.request; });
  // A waited request that stands in the queue before this slot has been answered, or is sent again.
  QueuePages* const queue = queue_.load(std::memory_order_acquire);
  const uint64_t filled = queue == nullptr ? 0 : queue->requests.filled();
  const std::string_view slots(reinterpret_cast<const char*>(&filled), sizeof filled);
  const FrameHeader marker{static_cast<uint16_t>(Verb::kRecovered), kFrameNoReply, 0, number};
  const auto until = steady_clock::now() + kSendAgain;
  bool sent = SendAgain(marker, kFrameAgain, slots, until);
  for (auto one = unanswered.begin(); sent && one != unanswered.end(); ++one) {
    sent = SendAgain(one->header, kFrameAgain, one->payload, until);
  }
  sent = sent && SendAgain(marker, 0, slots, until);
  if (!sent) LoseByBroker(Unavailable("the broker was started anew and does not read"));
}

// The broker does nothing else than to read meanwhile, so the wait is short.
bool Lifeline::SendAgain(FrameHeader header, uint16_t flags, std::string_view payload, Deadline until) {
  header.flags |= flags;
  for (;;) {
    const SendOutcome outcome = SendFrame(socket_.get(), header, payload, -1, false);
    if (outcome == SendOutcome::kSent) return true;
    if (outcome != SendOutcome::kAgain || steady_clock::now() >= until) return false;
    pollfd writable{socket_.get(), POLLOUT, 0};
    ::poll(&writable, 1, static_cast<int>(std::chrono::milliseconds(kBlock).count()));
  }
}

void Lifeline::ReadFrames() {
  pollfd look{socket_.get(), POLLIN, 0};
  while (!reading_ && !lost() && ::poll(&look, 1, 0) > 0) Read(Deadline{}, false);  // in the past, so it does not wait
}

void Lifeline::RunHandlers() {
  if (handling_ || late_.empty()) return;
  handling_ = true;
  while (!late_.empty()) {
    if (has_frame_.exchange(false)) ReadFrames();  // of an earlier request, perhaps
    LateAnswer next = std::move(late_.front());
    late_.pop_front();
    mutex_.unlock();
    bool handled = true;
    try {
      if (next.of.given_up && observer_) observer_(next.request, next.of.verb, next.answer);
      if (next.of.handler) next.of.handler(std::move(next.answer));
    } catch (const std::bad_alloc&) {
      handled = false;
    }
    mutex_.lock();
    unawaited_.erase(next.request);
    if (!handled) Lose(NoMemory());
  }
  has_late_.store(false);
  handling_ = false;
  if (followers_ > 0) changed_.NotifyAll();
}

Lifeline::Waiter* Lifeline::FindWaiter(uint64_t request) {
  Waiter* at = waiting_;
  while (at != nullptr && at->header.request != request) at = at->next;
  return at;
}

Lifeline::Waiter* Lifeline::TakeWaiter(uint64_t request) {
  for (Waiter** at = &waiting_; *at != nullptr; at = &(*at)->next) {
    if ((*at)->header.request == request) return std::exchange(*at, (*at)->next);
  }
  return nullptr;
}

// Runs on any thread that reads, for any other. An answer that cannot be kept is never given again, so the connection
// ends with it.
void Lifeline::Deliver(Frame& frame) {
  try {
    DeliverAnswer(frame);
  } catch (const std::bad_alloc&) {
    Lose(NoMemory());
  }
}

void Lifeline::DeliverAnswer(Frame& frame) {
  const FrameHeader& header = frame.header;
  if (frame.descriptors() > kFrameDescriptorsMax) {
    return Lose(Unavailable("the broker sent ", frame.descriptors(), " descriptors in one frame"));
  }
  if ((header.flags & kFrameProgress) != 0) return Advance(header.request);
  const auto answer = [&] { return AnswerOf(frame); };
  if (Waiter* const waiter = TakeWaiter(header.request)) {
    if (waiter->header.verb == header.verb) {
      waiter->answer.emplace(answer());
      waiter->done.store(true, std::memory_order_release);
      return;
    }
    waiter->next = std::exchange(waiting_, waiter);  // so that the caller gets the error of the lost connection
    return Lose(Unavailable("the broker answered with another verb than the request's"));
  }
  const auto found = unawaited_.find(header.request);
  const bool is_known = found != unawaited_.end() && !found->second.arrived;
  if (!is_known || static_cast<uint16_t>(found->second.verb) != header.verb) {
    return Lose(Unavailable("the broker answered a request that was never sent"));
  }
  if (!found->second.handler && !found->second.given_up) return void(unawaited_.erase(found));
  found->second.arrived = true;
  Unawaited of{
      .verb = found->second.verb, .handler = std::move(found->second.handler), .given_up = found->second.given_up};
  // Frames and completions overtake each other.
  const auto later = std::ranges::upper_bound(late_, header.request, {}, &LateAnswer::request);
  late_.insert(later, {header.request, std::move(of), answer()});
  has_late_.store(true);
}

void Lifeline::Advance(uint64_t request) {
  if (Waiter* const waiter = FindWaiter(request)) return void(waiter->advanced = true);
  // Progress of an earlier request may arrive late, because its answer came through the queue.
  const bool made = request < next_request_.load(std::memory_order_relaxed);
  if (!made) Lose(Unavailable("the broker reported progress of a request that was never sent"));
}

Result<Answer> Lifeline::AnswerOf(Frame& frame) {
  if ((frame.header.flags & kFrameMemoryWanted) != 0) memory_wanted_.store(true, std::memory_order_relaxed);
  if (frame.header.status != 0) return codec::DecodeError(frame.header.status, frame.payload);
  return Answer{std::string(frame.payload), std::move(frame.descriptor), std::move(frame.more)};
}

}  // namespace arraybridge
