#include "daemon/service/lifeline.h"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/service/closer.h"

namespace arraybridge {
namespace {

constexpr size_t kPayloadBytesMax = kFrameBytesMax - sizeof(FrameHeader);
constexpr size_t kErrorTextBytesMax = 4096;
// A frame costs its sender's socket at least this much until it is read.
constexpr uint64_t kFrameAccountedBytesMin = 512;

// One a thread that answers: the loop, the worker, gRPC's.
std::vector<char>& Scratch() {
  thread_local std::vector<char> scratch(kPayloadBytesMax);
  return scratch;
}

FrameHeader AnswerHeader(const FrameHeader& request, Code code, bool memory_wanted) {
  const uint16_t flags = memory_wanted ? uint16_t{kFrameMemoryWanted} : uint16_t{0};
  return {request.verb, flags, static_cast<uint32_t>(code), request.request};
}

// The kernel counts the unread descriptors of all: this peer need not be the one who hoards them.
std::string NoRoomInFlight() {
  v1::Error error;
  error.set_message("too many of the broker's descriptors are in flight, unread by others: try again");
  error.set_reason("DESCRIPTORS");
  return error.SerializeAsString();
}

}  // namespace

Lifeline::Lifeline(uint64_t key, Connection connection, const Limits& limits, int epoll)
    : key_(key),
      limits_(limits),
      epoll_(epoll),
      peer_(std::move(connection.peer)),
      takes_no_descriptors_(connection.takes_no_descriptors),
      socket_(std::move(connection.socket)) {}

void Lifeline::Answer(const FrameHeader& request, const google::protobuf::MessageLite& message, UniqueFd descriptor,
                      bool memory_wanted) {
  if ((request.flags & kFrameNoReply) != 0) return;
  const size_t bytes = message.ByteSizeLong();
  if (bytes > kPayloadBytesMax) {
    Refuse(request, ResourceExhausted("the answer has ", bytes, " bytes (a frame's maximum is ", kPayloadBytesMax, ")"),
           memory_wanted);
    return;
  }
  auto* out = reinterpret_cast<uint8_t*>(Scratch().data());
  message.SerializeWithCachedSizesToArray(out);
  AnswerBytes(request, {Scratch().data(), bytes}, std::move(descriptor), memory_wanted);
}

void Lifeline::AnswerBytes(const FrameHeader& request, std::string_view payload, UniqueFd descriptor,
                           bool memory_wanted) {
  if ((request.flags & kFrameNoReply) != 0) return;
  Send(AnswerHeader(request, Code::kOk, memory_wanted), payload, std::move(descriptor));
}

void Lifeline::Refuse(const FrameHeader& request, const Status& status, bool memory_wanted) {
  if ((request.flags & kFrameNoReply) != 0) return;
  v1::Error error;
  error.set_message(status.message().substr(0, kErrorTextBytesMax));
  error.set_reason(status.reason());
  for (const auto& [key, value] : status.metadata()) (*error.mutable_metadata())[key] = value;
  if (error.ByteSizeLong() > kPayloadBytesMax) error.clear_metadata();
  const std::string payload = error.SerializeAsString();
  Send(AnswerHeader(request, status.code(), memory_wanted), payload, {});
}

void Lifeline::Send(const FrameHeader& header, std::string_view payload, UniqueFd descriptor) {
  MutexLock lock(mutex_);
  if (closed_ || cut_ != kNotCut) return;
  if (descriptor.valid() && !MayCarryDescriptor()) return CutLocked(EndCause::kLimit);
  if (owed_.empty()) {
    const SendOutcome outcome = SendNow(header, payload, descriptor);
    if (outcome == SendOutcome::kSent) return;
    if (outcome != SendOutcome::kAgain) return CutLocked(EndCause::kClean);
  }
  Owe(header, payload, std::move(descriptor));
}

void Lifeline::Owe(const FrameHeader& header, std::string_view payload, UniqueFd descriptor) {
  const uint64_t bytes = owed_bytes_ + sizeof header + payload.size();
  if (owed_.size() >= limits_.output_frames_max || bytes > limits_.output_bytes_max) {
    return CutLocked(EndCause::kLimit);
  }
  owed_bytes_ = bytes;
  if (descriptor.valid()) ++owed_descriptors_;
  owed_.push_back({header, std::string(payload), std::move(descriptor)});
  if (owed_.size() == 1) WantWritable(true);
}

void Lifeline::ForgetOwed() {
  owed_.clear();
  owed_bytes_ = owed_descriptors_ = 0;
}

SendOutcome Lifeline::SendNow(const FrameHeader& header, std::string_view payload, const UniqueFd& descriptor) {
  if (!descriptor.valid()) return SendFrame(socket_.get(), header, payload, -1, false);
  const SendOutcome outcome = SendFrame(socket_.get(), header, payload, descriptor.get(), false);
  if (outcome == SendOutcome::kSent) ++descriptors_unread_;
  if (outcome != SendOutcome::kTooManyDescriptors) return outcome;
  FrameHeader refused = header;
  refused.status = static_cast<uint32_t>(Code::kResourceExhausted);
  return SendFrame(socket_.get(), refused, NoRoomInFlight(), -1, false);
}

// Descriptors that nobody reads count against this daemon's own limit. The kernel says how many bytes are unread, which
// bounds the frames, which bound the descriptors.
bool Lifeline::MayCarryDescriptor() {
  if (owed_descriptors_ + descriptors_unread_ < limits_.descriptors_in_flight_max) return true;
  int bytes = 0;
  if (::ioctl(socket_.get(), SIOCOUTQ, &bytes) != 0) return false;
  descriptors_unread_ = std::min(descriptors_unread_, static_cast<uint64_t>(bytes) / kFrameAccountedBytesMin);
  return owed_descriptors_ + descriptors_unread_ < limits_.descriptors_in_flight_max;
}

void Lifeline::Flush() {
  MutexLock lock(mutex_);
  while (!owed_.empty() && !closed_ && cut_ == kNotCut) {
    const Owed& next = owed_.front();
    const SendOutcome outcome = SendNow(next.header, next.payload, next.descriptor);
    if (outcome == SendOutcome::kAgain) return;
    if (outcome != SendOutcome::kSent) return CutLocked(EndCause::kClean);
    owed_bytes_ -= sizeof next.header + next.payload.size();
    if (next.descriptor.valid()) --owed_descriptors_;
    owed_.pop_front();
  }
  WantWritable(false);
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
  ForgetOwed();
  if (takes_no_descriptors_ || !socket_.valid()) return socket_.reset();
  ::shutdown(socket_.get(), SHUT_RDWR);  // the peer knows at once
  CloseAside(std::move(socket_));
}

}  // namespace arraybridge
