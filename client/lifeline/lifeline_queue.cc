// SPDX-License-Identifier: Apache-2.0
// Requests through the session's queue. Once the broker serves the queue, all requests go through it.
#include <sched.h>

#include <algorithm>
#include <new>
#include <utility>

#include "client/lifeline/lifeline.h"
#include "client/wire/codec.h"
#include "proto/boundary/pause.h"

namespace arraybridge {
namespace {

using session_queue::Format;
using std::chrono::steady_clock;

constexpr FrameHeader kDoorbell{static_cast<uint16_t>(Verb::kDoorbell), kFrameNoReply, 0, 0};
constexpr uint32_t kCallsBefore = 16;     // a process with few calls needs no queue
constexpr unsigned kPausesPerYield = 64;  // about two microseconds, longer than most answers take
// How much longer a client polls whose request waits while the broker serves others: to wake a client costs the broker
// more than to serve it.
constexpr int kTurnsOfOthers = 20;

uint8_t FlagsOf(const FrameHeader& header) {
  uint8_t flags = 0;
  if ((header.flags & kFrameNoReply) != 0) flags |= session_queue::kUnwaited;
  if ((header.flags & kFrameDeadline) != 0) flags |= session_queue::kDeadline;
  if ((header.flags & kFrameProgress) != 0) flags |= session_queue::kProgress;
  return flags;
}

}  // namespace

void Lifeline::CountCall() {
  if (calls_.load(std::memory_order_relaxed) > kCallsBefore) return;
  if (calls_.fetch_add(1, std::memory_order_relaxed) == kCallsBefore) WantQueue();
}

// If a busy broker does not take the request now, the client does not repeat it, because the socket also works.
void Lifeline::WantQueue() {
  if (!queue_offered_ || queue_requested_.exchange(true, std::memory_order_relaxed)) return;
  const wire::BrowseRequest request{.namespace_ = queue_ns_, .part = wire::BrowseRequest::Part::kQueue};
  static_cast<void>(
      Ask(Verb::kBrowse, wire::Encode(request), [this](const Result<Answer>& answer) { MapQueue(answer); }));
}

void Lifeline::MapQueue(const Result<Answer>& answer) {
  if (!answer.ok() || answer->more.size() != 1) return;
  auto mapped = QueuePages::Map(answer->descriptor, answer->more.front());
  if (!mapped.ok()) return;
  mapped_queue_ = *std::move(mapped);
  static_cast<void>(
      Ask(Verb::kMapped, wire::Encode(wire::MappedRequest{.queue = true}), [this](const Result<Answer>& sealed) {
        // The lock orders this with unawaited frames: each is sent before, or goes through the queue.
        const MutexLock lock(mutex_);
        if (sealed.ok()) queue_.store(mapped_queue_.get(), std::memory_order_release);
      }));
}

Result<Answer> Lifeline::CallByQueue(QueuePages& queue, Waiter& waiter, std::string_view payload, Deadline deadline,
                                     const CompletionHandler& handler) {
  // On several processors only the daemon decides whether to yield, because there its yields are the cost.
  const bool skip = spin_.count() == 0 || (alone_ && backoff_.SkipTurn());
  const uint8_t backed_off = skip ? uint8_t{session_queue::kBackedOff} : uint8_t{0};
  AB_ASSIGN_OR_RETURN(const auto submitted, Submit(queue, {waiter.header, backed_off, payload, deadline, &waiter}));
  Turn turn{steady_clock::now(), completed_.load(std::memory_order_relaxed)};
  const bool kept_away = !skip && !Spin(queue, waiter, submitted, turn) && queue.taken() < submitted;
  if (waiter.done.load(std::memory_order_acquire)) return *std::move(waiter.answer);
  MutexLock lock(mutex_);
  auto answer = Await(waiter, deadline, handler);
  if (kept_away) NoteTurn(turn, steady_clock::now());
  // The page still tells whether a daemon that has gone took the request. A child forked meanwhile has no page.
  const bool has_ended = !waiter.answer && lost() && lost_by_broker_;
  if (!has_ended || queue_.load() != &queue || queue.taken() >= submitted) return answer;
  return Status(Code::kUnavailable, why_lost_.message(), std::string(kNotSent));
}

// Waits until the deadline if the queue is full, or if the socket is full and the request is too long for the queue.
Result<uint64_t> Lifeline::Submit(QueuePages& queue, const Request& request) {
  if (request.payload.size() > kFrameBytesMax - sizeof(FrameHeader)) return TooLarge(request.payload.size());
  const bool is_long = request.payload.size() > Format::kPayloadBytesMax;
  const std::string_view payload = is_long ? std::string_view() : request.payload;
  const uint64_t slots = spsc::SlotsOf<Format>(Format::WordsOfPayload(payload.size()));
  uint64_t end = 0;
  bool doorbell_is_due = false;
  {
    MutexLock lock(mutex_);
    for (;;) {
      const bool has_pages = queue_.load(std::memory_order_relaxed) == &queue;  // false in a forked child
      if (has_pages && queue.completions.HasEntry()) Reap(queue);
      if (!has_pages || lost()) return Status(Code::kUnavailable, why_lost_.message(), std::string(kNotSent));
      auto sent = SendOutcome::kAgain;
      const bool has_free_slots = queue.requests.HasRoom(slots);
      if (queue.requests.broken()) Lose(Unavailable("the broker counts requests that were never sent"));
      if (has_free_slots) sent = is_long ? SendQueued(request) : SendOutcome::kSent;
      if (sent == SendOutcome::kSent) break;
      if (sent != SendOutcome::kAgain) LoseByBroker(Unavailable("the connection to the broker is lost"));
      if (lost()) continue;
      AB_RETURN_IF_ERROR(AwaitFreeSlots(queue, has_free_slots ? 0 : slots, request.deadline));
    }
    if (request.confirmed != nullptr) *request.confirmed = TakeConfirmed(queue);
    auto flags = static_cast<uint8_t>(FlagsOf(request.header) | request.flags);
    if (is_long) flags |= session_queue::kOnSocket;
    const session_queue::Header header{.verb = static_cast<uint8_t>(request.header.verb),
                                       .flags = flags,
                                       .bytes = 0,
                                       .status = request.header.status,
                                       .id = request.header.request};
    const uint64_t words = session_queue::Encode(header, payload, entry_);
    const bool is_unawaited = request.waiter == nullptr && (request.header.flags & kFrameNoReply) == 0;
    if (is_unawaited) NoteSent(request.header.request);
    if (request.waiter != nullptr) request.waiter->next = std::exchange(waiting_, request.waiter);
    queue.requests.Write({entry_.data(), words});
    end = queue.requests.filled();
    doorbell_is_due = queue.doorbell.IsDue();
  }
  if (doorbell_is_due) SendDoorbell(queue, request.deadline);
  return end;
}

// Sends the frame before its entry in the queue, so that it has arrived when the daemon reads the entry. The lock keeps
// frames and entries in the same order.
SendOutcome Lifeline::SendQueued(const Request& request) {
  FrameHeader header = request.header;
  header.flags |= kFrameQueued;
  return SendFrame(socket_.get(), header, request.payload, -1, false);
}

// If the daemon does not take the doorbell now, it has other frames of this session to read, so it is awake.
void Lifeline::SendDoorbell(QueuePages& queue, std::optional<Deadline> deadline) {
  const MutexLock lock(mutex_);
  if (!SendFrameUntil(kDoorbell, {}, deadline).ok()) queue.doorbell.Repeat();
}

Status Lifeline::AwaitFreeSlots(QueuePages& queue, uint64_t slots, std::optional<Deadline> deadline) {
  if (!deadline) return DeadlineExceeded("the broker has not taken earlier requests");
  if (slots == 0) return AwaitWritable(deadline);  // room on the socket
  Status waited = ReadUntilFreeSlots(queue, slots, *deadline);
  if (waited.ok() || waited.code() == Code::kCancelled) return waited;
  return DeadlineExceeded("the broker did not take the request in time");
}

// Delivers all completions in the queue to the threads that wait for them.
void Lifeline::Reap(QueuePages& queue) {
  bool any = false;
  for (; !lost() && queue.completions.Copy(entry_) != 0; any = true) {
    queue.completions.Take();
    completed_.fetch_add(1, std::memory_order_relaxed);
    const session_queue::Header header = session_queue::HeaderOf(entry_);
    const std::string_view payload = session_queue::PayloadOf(entry_);
    if ((header.flags & session_queue::kOnSocket) != 0) {
      Waiter* const waiter = FindWaiter(header.id);
      if (waiter != nullptr) waiter->on_socket.store(true, std::memory_order_release);
      if (waiter == nullptr) has_frame_.store(true);
      continue;
    }
    if ((header.flags & session_queue::kUnwaited) != 0) {
      try {
        failed_.push_back({header.id, codec::DecodeError(header.status, payload)});
      } catch (const std::bad_alloc&) {
        return Lose(NoMemory());
      }
      if (failed_.size() > Format::kSlots) Lose(Unavailable("the broker refused publishes that were never sent"));
      continue;
    }
    const bool wanted = (header.flags & session_queue::kMemoryWanted) != 0;
    Frame frame;
    frame.header = {header.verb, wanted ? uint16_t{kFrameMemoryWanted} : uint16_t{0}, header.status, header.id};
    frame.payload = payload;
    Deliver(frame);
  }
  if (queue.completions.broken()) Lose(Unavailable("the broker wrote an invalid completion"));
  if (any && followers_ > 0) changed_.NotifyAll();
  // The daemon may have stopped because the completion queue was full.
  if (!any || queue.taken() == queue.requests.filled() || !queue.doorbell.IsDue()) return;
  if (SendFrame(socket_.get(), kDoorbell, {}, -1, false) != SendOutcome::kSent) queue.doorbell.Repeat();
}

// Polls for the answer, and yields, as long as that is cheaper than sleeping. Returns true if the answer has arrived or
// is on the socket.
bool Lifeline::Spin(QueuePages& queue, const Waiter& waiter, uint64_t submitted, const Turn& turn) {
  for (auto now = turn.begun;;) {
    for (unsigned i = 0; i < (alone_ ? 1 : kPausesPerYield); ++i) {
      if (queue.completions.HasEntry() && mutex_.try_lock()) {
        Reap(queue);
        mutex_.unlock();
      }
      if (waiter.done.load(std::memory_order_acquire)) return NoteTurn(turn, now), true;
      if (waiter.on_socket.load(std::memory_order_acquire) || lost()) return true;
      if (!alone_) Pause();
    }
    // Checked after polling, because one yield may have taken milliseconds.
    const bool taken = queue.taken() >= submitted;
    if (now - turn.begun >= (taken ? spin_ : kTurnsOfOthers * spin_)) return false;
    ::sched_yield();
    now = steady_clock::now();
  }
}

// Counts per session, not per thread. A thread that waits for answers to its siblings is not being kept off the
// processor by other processes, and a gap in which several threads waited counts once.
void Lifeline::NoteTurn(const Turn& turn, Deadline now) {
  if (!alone_) return;
  const auto answers = static_cast<int64_t>(completed_.load(std::memory_order_relaxed) - turn.completed);
  const auto each = (now - turn.begun) / std::max<int64_t>(1, answers);
  if (each > SpinBackoff::kShort) {
    if (turn.begun.time_since_epoch().count() < noted_until_.load(std::memory_order_relaxed)) return;
    noted_until_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  }
  backoff_.Waited(each);
}

// The last check holds the lock, under which answers are delivered, so a completion that another thread took has been
// delivered.
bool Lifeline::MaySleep(QueuePages& queue) {
  queue.doorbell.Announce();
  ThreadFence(std::memory_order_seq_cst);
  if (!queue.completions.HasEntry()) return true;
  queue.doorbell.Wake();
  Reap(queue);
  return false;
}

Lifeline::Submission Lifeline::SubmitPublish(std::string_view message) {
  Submission submission;
  QueuePages* const queue = queue_.load(std::memory_order_acquire);
  if (queue == nullptr || message.size() > Format::kPayloadBytesMax) return submission;
  const FrameHeader header{static_cast<uint16_t>(Verb::kPublish), kFrameNoReply, 0, next_request_.fetch_add(1)};
  const auto end = Submit(*queue, {header, 0, message, std::nullopt, nullptr, &submission.confirmed});
  if (end.ok()) submission.submitted = Submitted{header.request, *end};
  return submission;
}

Lifeline::Confirmed Lifeline::TakeConfirmed() {
  const MutexLock lock(mutex_);
  QueuePages* const queue = queue_.load(std::memory_order_acquire);
  return queue == nullptr ? Confirmed{} : TakeConfirmed(*queue);
}

Lifeline::Confirmed Lifeline::TakeConfirmed(QueuePages& queue) {
  Confirmed confirmed;
  confirmed.served = queue.served();  // read before the failures, which are written earlier
  if (confirmed.served > queue.requests.filled()) Lose(Unavailable("the broker served requests that were never sent"));
  if (queue.completions.HasEntry()) Reap(queue);
  confirmed.failed = std::exchange(failed_, {});
  return confirmed;
}

}  // namespace arraybridge
