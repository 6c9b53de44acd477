// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/grpc/grpc_meter.h"

#include <algorithm>
#include <span>

namespace arraybridge::daemon {
namespace {

constexpr double kBurstSeconds = 2;  // of resets, after a pause
constexpr uint64_t kUpdates = 3;     // expected for each call and each frame of an answer: two of windows, one PING
constexpr uint64_t kExpectedMax = uint64_t{1} << 16;  // of each kind of answer

// The bytes in this piece of a message; `left` bytes of the message are left.
std::span<const uint8_t> Take(const iovec& piece, size_t& left) {
  const size_t size = std::min(left, piece.iov_len);
  left -= size;
  return {static_cast<const uint8_t*>(piece.iov_base), size};
}

void Expect(uint64_t& expected, uint64_t more) { expected = std::min(expected + more, kExpectedMax); }

}  // namespace

double GrpcUser::Most() const { return kBurstSeconds * static_cast<double>(limits_.grpc_resets_per_second); }

void GrpcUser::Refill(TimePoint now) {
  const std::chrono::duration<double> passed = now - refilled_;
  if (passed.count() <= 0) return;
  left_ = std::min(Most(), left_ + passed.count() * static_cast<double>(limits_.grpc_resets_per_second));
  refilled_ = now;
}

const char* GrpcUser::ChargeCall() { return ++calls_ > limits_.grpc_calls_per_uid() ? "requests_per_uid" : nullptr; }

const char* GrpcUser::ChargeBytes(uint64_t bytes) {
  return (bytes_ += bytes) > limits_.grpc_bytes_per_uid() ? "requests_per_uid" : nullptr;
}

const char* GrpcUser::ChargeResets(uint64_t count, TimePoint now) {
  const MutexLock lock(mutex_);
  Refill(now);
  left_ = std::max(-Most(), left_ - static_cast<double>(count));
  return left_ < 0 ? "grpc_resets_per_second" : nullptr;
}

bool GrpcUser::IsBlank(TimePoint now) {
  const MutexLock lock(mutex_);
  Refill(now);
  return left_ >= Most() && calls_ == 0;
}

// A client that ends its connection resets its calls.
GrpcMeter::~GrpcMeter() {
  uint64_t bytes = 0;
  for (const Call& call : calls_) bytes += call.bytes;
  user_->Return(calls_.size(), bytes);
  if (!calls_.empty()) user_->ChargeResets(calls_.size());
}

bool GrpcMeter::Receive(const msghdr& message, size_t bytes) {
  const MutexLock lock(mutex_);
  for (size_t i = 0; bytes > 0; ++i) {
    auto piece = Take(message.msg_iov[i], bytes);
    while (const auto frame = received_.Next(piece)) {
      if (exceeded_ == nullptr) exceeded_ = Count(*frame);
    }
  }
  return exceeded_ == nullptr;
}

const char* GrpcMeter::exceeded() const {
  const MutexLock lock(mutex_);
  return exceeded_;
}

const char* GrpcMeter::Count(const Http2Frame& frame) {
  switch (frame.type) {
    case Http2Frame::kHeaders:
      header_bytes_ = 0;
      return CountHeaders(frame);
    case Http2Frame::kContinuation:
      header_bytes_ += Http2Frames::kHeaderBytes + frame.bytes;
      return header_bytes_ > limits_.grpc_header_bytes_max ? "grpc_header_bytes_max" : nullptr;
    case Http2Frame::kData:
      return CountData(frame);
    case Http2Frame::kSettings:
      return CountAnswer(frame.Has(Http2Frame::kAck) ? settings_acks_expected_ : settings_expected_);
    case Http2Frame::kPing:
      return CountAnswer(frame.Has(Http2Frame::kAck) ? ping_acks_expected_ : updates_expected_);
    case Http2Frame::kWindowUpdate:
      return CountAnswer(updates_expected_);
    case Http2Frame::kResetStream:
      End(frame.stream);
      break;
    default:
      break;
  }
  return user_->ChargeResets(1);
}

const char* GrpcMeter::CountHeaders(const Http2Frame& frame) {
  header_bytes_ = frame.bytes;
  if (header_bytes_ > limits_.grpc_header_bytes_max) return "grpc_header_bytes_max";
  if (Find(frame.stream) != nullptr) return nullptr;                // they end the request
  if (frame.stream <= last_stream_) return user_->ChargeResets(1);  // of a call that has ended
  last_stream_ = frame.stream;
  calls_.push_back({frame.stream, 0});
  Expect(updates_expected_, kUpdates);
  if (const char* const exceeded = user_->ChargeCall(); exceeded != nullptr) return exceeded;
  return calls_.size() > limits_.grpc_streams_max ? "grpc_streams_max" : nullptr;
}

const char* GrpcMeter::CountData(const Http2Frame& frame) {
  Call* const call = Find(frame.stream);
  if (call == nullptr || (frame.bytes == 0 && !frame.Has(Http2Frame::kEndStream))) return user_->ChargeResets(1);
  call->bytes += frame.bytes;
  return user_->ChargeBytes(frame.bytes);
}

const char* GrpcMeter::CountAnswer(uint64_t& expected) {
  if (expected == 0) return user_->ChargeResets(1);
  --expected;
  return nullptr;
}

void GrpcMeter::CountSent(const msghdr& message, size_t bytes) {
  for (size_t i = 0; bytes > 0; ++i) {
    auto piece = Take(message.msg_iov[i], bytes);
    while (const auto frame = sent_.Next(piece)) CountSent(*frame);
  }
}

void GrpcMeter::CountSent(const Http2Frame& frame) {
  const bool is_ack = frame.Has(Http2Frame::kAck);
  switch (frame.type) {
    case Http2Frame::kData:
      return Expect(updates_expected_, kUpdates);
    case Http2Frame::kHeaders:
      if (frame.Has(Http2Frame::kEndStream)) End(frame.stream);
      return;
    case Http2Frame::kSettings:
      return is_ack ? void() : Expect(settings_acks_expected_, 1);
    case Http2Frame::kPing:
      return is_ack ? void() : Expect(ping_acks_expected_, 1);
    case Http2Frame::kResetStream:
      // A client can provoke it by a frame that breaks the rules, which costs as much as a reset of its own.
      if (End(frame.stream) && exceeded_ == nullptr) exceeded_ = user_->ChargeResets(1);
      return;
    default:
      return;
  }
}

GrpcMeter::Call* GrpcMeter::Find(uint32_t stream) {
  const auto found = std::ranges::find(calls_, stream, &Call::stream);
  return found == calls_.end() ? nullptr : &*found;
}

bool GrpcMeter::End(uint32_t stream) {
  Call* const call = Find(stream);
  if (call == nullptr) return false;
  user_->Return(1, call->bytes);
  *call = calls_.back();
  calls_.pop_back();
  return true;
}

}  // namespace arraybridge::daemon
