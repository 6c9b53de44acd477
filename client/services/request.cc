// SPDX-License-Identifier: Apache-2.0
#include "client/services/request.h"

#include <algorithm>

#include "client/services/letters.h"

namespace arraybridge {

namespace {

constexpr size_t kWhyBytesMax = 4096;
constexpr uint8_t kContinues = 0x80, kContinuesMask = 0xC0;  // the bytes of a character of UTF-8 after its first

constexpr std::chrono::milliseconds kLook{100};  // how often it looks whether the caller's time is over

Status Answered() {
  return FailedPrecondition("this request was answered, or its service was closed: each is answered once")
      .Because("REQUEST_ANSWERED");
}

std::chrono::nanoseconds Now() { return std::chrono::steady_clock::now().time_since_epoch(); }

// At most so many bytes, and no part of a character.
std::string_view Cut(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<uint8_t>(text[bytes]) & kContinuesMask) == kContinues) --bytes;
  return text.substr(0, bytes);
}

}  // namespace

ServiceRequest::Core::Core(std::shared_ptr<services::Answering> server, const ServiceLetter& letter, Acquired value)
    : server_(std::move(server)),
      key_(letter.peer, letter.number),
      due_ns_(letter.due_ns),
      value_(std::move(value)),
      takes_items_(letter.room > 0),
      room_(letter.room) {}

ServiceRequest::Core::~Core() {
  if (answered_.load() || !begun()) return;
  static_cast<void>(Answer(services::kFailed, "the server went on without an answer", nullptr));
}

bool ServiceRequest::Core::is_cancelled() const {
  return cancelled_.load() || (due_ns_ != 0 && static_cast<uint64_t>(Now().count()) >= due_ns_);
}

std::optional<std::chrono::milliseconds> ServiceRequest::Core::left() const {
  if (due_ns_ == 0) return std::nullopt;
  const std::chrono::nanoseconds due(static_cast<int64_t>(std::min<uint64_t>(due_ns_, INT64_MAX)));
  return std::max(std::chrono::milliseconds(0), std::chrono::ceil<std::chrono::milliseconds>(due - Now()));
}

Result<bool> ServiceRequest::Core::Answer(const char* kind, std::string_view why, const services::Content* content) {
  if (answered_.exchange(true)) return Answered();
  ServiceLetter letter{.kind = kind, .number = key_.second, .text = std::string(Cut(why, kWhyBytesMax))};
  auto sent = server_->Answer(*this, std::move(letter), content);
  if (!sent.ok()) answered_.store(false);
  return sent;
}

Result<bool> ServiceRequest::Core::Stream(const services::Content& content) {
  if (answered_.load()) return Answered();
  if (!takes_items_) {
    AB_RETURN_IF_ERROR(Answer(services::kFailed,
                              "it answers with a sequence of items: pass stream=True to Broker.call, or call "
                              "ServiceCaller::Stream",
                              nullptr)
                           .status());
    return false;
  }
  while (room_.load() == 0 && !is_cancelled()) ReadArrived(kLook);
  if (is_cancelled()) return false;
  auto sent = server_->Answer(*this, {.kind = services::kItem, .number = key_.second}, &content);
  if (sent.ok()) room_.fetch_sub(1);
  return sent;
}

}  // namespace arraybridge
