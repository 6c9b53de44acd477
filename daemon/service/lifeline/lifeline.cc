// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/lifeline/lifeline.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "daemon/service/system/closer.h"
#include "proto/boundary/text.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {
namespace {

constexpr size_t kPayloadBytesMax = kFrameBytesMax - sizeof(FrameHeader);
constexpr size_t kErrorTextBytesMax = 4096;
// The pause before retrying a socket that was writable but accepted nothing; it doubles each time.
constexpr std::chrono::milliseconds kNoPause{0};
constexpr std::chrono::milliseconds kPauseMin{1};
constexpr std::chrono::milliseconds kPauseMax{250};
// The kernel counts the unread descriptors of all clients together, so another client may be the cause.
constexpr std::string_view kNoneLeft =
    "other clients have not read too many of the broker's descriptors: try again later";

FrameHeader AnswerHeader(const FrameHeader& request, Code code, bool memory_wanted) {
  const uint16_t wanted = memory_wanted ? uint16_t{kFrameMemoryWanted} : uint16_t{0};
  const auto flags = static_cast<uint16_t>(wanted | (request.flags & kFrameInQueue));
  return {request.verb, flags, static_cast<uint32_t>(code), request.request};
}

}  // namespace

Lifeline::Lifeline(uint64_t key, Connection connection, const Limits& limits, int epoll,
                   std::shared_ptr<DescriptorsInFlight> in_flight, const Undelivered& undelivered, Traffic& traffic)
    : key_(key),
      limits_(limits),
      epoll_(epoll),
      peer_(std::move(connection.peer)),
      takes_no_descriptors_(connection.takes_no_descriptors),
      in_flight_(std::move(in_flight)),
      undelivered_(undelivered),
      traffic_(traffic),
      socket_(std::move(connection.socket)) {}

void Lifeline::Answer(const FrameHeader& request, std::string_view message, PassedFd descriptor, bool memory_wanted) {
  if ((request.flags & kFrameNoReply) != 0) return;
  if (message.size() > kPayloadBytesMax) {
    return Refuse(
        request,
        ResourceExhausted("the answer has ", message.size(), " bytes (a frame's maximum is ", kPayloadBytesMax, ")"),
        memory_wanted);
  }
  Send(AnswerHeader(request, Code::kOk, memory_wanted), message, std::move(descriptor));
}

void Lifeline::Refuse(const FrameHeader& request, const Status& status, bool memory_wanted) {
  if ((request.flags & kFrameNoReply) != 0) return;
  wire::Error error{.message = FirstBytes(status.message(), kErrorTextBytesMax), .reason = status.reason()};
  for (const auto& [key, value] : status.metadata()) error.metadata.push_back({key, value});
  if (wire::SizeOf(error) > kPayloadBytesMax) error.metadata.clear();
  Send(AnswerHeader(request, status.code(), memory_wanted), wire::Encode(error), {});
}

void Lifeline::TellProgress(const FrameHeader& request) {
  MutexLock lock(mutex_);
  if (closed_ || cut_ != kNotCut || !owed_.empty()) return;
  static_cast<void>(SendFrame(socket_.get(), {request.verb, kFrameProgress, 0, request.request}, {}, -1, false));
}

void Lifeline::SetQueue(OpenQueue queue) {
  auto set = std::make_unique<const OpenQueue>(std::move(queue));
  MutexLock lock(mutex_);
  queue_ = std::move(set);
}

bool Lifeline::Complete(const FrameHeader& header, std::string_view payload) {
  const bool wanted = (header.flags & kFrameMemoryWanted) != 0;
  const session_queue::Header completion{.verb = static_cast<uint8_t>(header.verb),
                                         .flags = wanted ? uint8_t{session_queue::kMemoryWanted} : uint8_t{0},
                                         .bytes = 0,
                                         .status = header.status,
                                         .id = header.request};
  const auto written = queue_->queue->Complete(completion, payload);
  if (written == SessionQueue::Written::kDoorbellIsDue) SendDoorbellLocked();
  return written != SessionQueue::Written::kNo;
}

// The frame wakes a client that slept. The client may have read the frame already and sleep again for another answer.
void Lifeline::CompleteOnSocket(const FrameHeader& header) {
  const session_queue::Header completion{.verb = static_cast<uint8_t>(header.verb),
                                         .flags = session_queue::kOnSocket,
                                         .bytes = 0,
                                         .status = 0,
                                         .id = header.request};
  if (queue_->queue->Complete(completion, {}) == SessionQueue::Written::kDoorbellIsDue) SendDoorbellLocked();
}

void Lifeline::TellRecovered(uint64_t number) {
  Send({static_cast<uint16_t>(Verb::kRecovered), kFrameNoReply, 0, number}, {}, {});
}

void Lifeline::SendDoorbell() {
  MutexLock lock(mutex_);
  SendDoorbellLocked();
}

// A client with owed frames is woken by them.
void Lifeline::SendDoorbellLocked() {
  if (closed_ || cut_ != kNotCut || !owed_.empty()) return;
  Outgoing frame{{static_cast<uint16_t>(Verb::kDoorbell), kFrameNoReply, 0, 0}, {}, {}, {}};
  const SendOutcome outcome = SendNow(&frame);
  if (outcome == SendOutcome::kAgain) return Owe(std::move(frame));
  if (outcome != SendOutcome::kSent) CutLocked(EndCause::kClean);
}

void Lifeline::Send(FrameHeader header, std::string_view payload, PassedFd descriptor) {
  MutexLock lock(mutex_);
  if (closed_ || cut_ != kNotCut) return;
  const bool in_queue = (header.flags & kFrameInQueue) != 0;
  header.flags &= static_cast<uint16_t>(~kFrameInQueue);
  if (in_queue && !descriptor.valid() && Complete(header, payload)) return;
  Outgoing frame{header, payload, std::move(descriptor), {}};
  if (frame.descriptor.valid()) {
    const auto room = in_flight_->Reserve(socket_.get(), frame.descriptor.count());
    if (room == DescriptorsInFlight::Room::kNoneInSession) return CutLocked(EndCause::kLimit);
    if (room == DescriptorsInFlight::Room::kNoneForUser) {
      BecomeRefusal(&frame,
                    Concat("user ", peer_.uid, " has too many unread descriptors to get another one (the most is ",
                           limits_.descriptors_in_flight_per_uid, "): read answers and try again"));
    }
  }
  if (owed_.empty()) {
    const SendOutcome outcome = SendNow(&frame);
    if (outcome == SendOutcome::kSent) return in_queue ? CompleteOnSocket(header) : void();
    if (outcome != SendOutcome::kAgain) return CutLocked(EndCause::kClean);
  }
  Owe(std::move(frame));
}

void Lifeline::Owe(Outgoing frame) {
  const uint64_t bytes = owed_bytes_ + sizeof frame.header + frame.payload.size();
  if (owed_.size() >= limits_.output_frames_max || bytes > limits_.output_bytes_max) {
    return CutLocked(EndCause::kLimit);
  }
  owed_bytes_ = bytes;
  owed_.push_back({frame.header, std::string(frame.payload), std::move(frame.descriptor)});
  if (owed_.size() == 1) WantWritable(true);
}

void Lifeline::ForgetOwed() {
  owed_.clear();
  owed_bytes_ = 0;
}

// Undoes the effect of the request before the refusal is sent, because the client may repeat the request at once.
void Lifeline::BecomeRefusal(Outgoing* frame, std::string_view message) {
  if (session) undelivered_(*session, Verb{frame->header.verb}, frame->payload);
  frame->header.status = static_cast<uint32_t>(Code::kResourceExhausted);
  frame->refusal = wire::Encode(wire::Error{.message = message, .reason = "DESCRIPTORS"});
  frame->payload = frame->refusal;
  frame->descriptor = {};
}

SendOutcome Lifeline::SendNow(Outgoing* frame) {
  if (!frame->descriptor.valid()) return SendFrame(socket_.get(), frame->header, frame->payload, -1, false);
  const size_t count = frame->descriptor.count();
  std::array<int, kFrameDescriptorsMax> descriptors{frame->descriptor.get()};
  AB_CHECK(count <= descriptors.size());
  for (size_t i = 1; i < count; ++i) descriptors[i] = frame->descriptor.more()[i - 1].get();
  const SendOutcome outcome =
      SendFrame(socket_.get(), frame->header, frame->payload, {descriptors.data(), count}, false);
  if (outcome == SendOutcome::kSent) {
    in_flight_->NoteSent(socket_.get(), count);
    traffic_.CountPassed(frame->descriptor.kind(), count);
  }
  if (outcome != SendOutcome::kTooManyDescriptors) return outcome;
  in_flight_->NoteDropped(socket_.get(), count);
  BecomeRefusal(frame, kNoneLeft);
  return SendFrame(socket_.get(), frame->header, frame->payload, -1, false);
}

std::optional<std::chrono::milliseconds> Lifeline::Flush() {
  MutexLock lock(mutex_);
  bool sent = false;
  while (!owed_.empty() && !closed_ && cut_ == kNotCut) {
    Owed& next = owed_.front();
    owed_bytes_ -= sizeof next.header + next.payload.size();
    Outgoing frame{next.header, next.payload, std::move(next.descriptor), {}};
    const SendOutcome outcome = SendNow(&frame);
    if (outcome == SendOutcome::kAgain) {
      next = {frame.header, std::string(frame.payload), std::move(frame.descriptor)};
      owed_bytes_ += sizeof next.header + next.payload.size();
      if (sent) return pause_ = kNoPause, WantWritable(true), std::nullopt;
      WantWritable(false);
      return pause_ = std::clamp(2 * pause_, kPauseMin, kPauseMax);
    }
    if (outcome != SendOutcome::kSent) return CutLocked(EndCause::kClean), std::nullopt;
    owed_.pop_front();
    sent = true;
  }
  pause_ = kNoPause;
  WantWritable(false);
  return std::nullopt;
}

void Lifeline::WantWritable(bool wanted) {
  if (closed_) return;
  epoll_event event{};
  event.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.u64 = 2 * key_;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, socket_.get(), &event);
}

void Lifeline::Cut(EndCause cause) {
  MutexLock lock(mutex_);
  CutLocked(cause);
}

void Lifeline::CutLocked(EndCause cause) {
  if (cut_ != kNotCut || closed_) return;
  cut_ = static_cast<int>(cause);
  if (queue_) queue_->queue->Stop();
  ForgetOwed();
  ::shutdown(socket_.get(), SHUT_RDWR);
}

std::optional<EndCause> Lifeline::cut() const {
  const int cause = cut_.load(std::memory_order_acquire);
  if (cause == kNotCut) return std::nullopt;
  return static_cast<EndCause>(cause);
}

void Lifeline::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  if (queue_) queue_->queue->Stop();
  ForgetOwed();
  if (!socket_.valid()) return;
  ::shutdown(socket_.get(), SHUT_RDWR);  // the peer is notified at once
  socket_ = in_flight_->CloseWhenRead(std::move(socket_));
  if (takes_no_descriptors_) return socket_.reset();
  CloseAside(std::move(socket_));
}

}  // namespace arraybridge::daemon
