// SPDX-License-Identifier: Apache-2.0
// A wait consists of requests that are as long as the broker allows. Events that arrive after their caller has given up
// (interrupted or timed out) are kept for the next call, so that each event is returned once.
#include "client/watch/watch.h"

#include <algorithm>
#include <array>
#include <utility>

#include "client/process/fork_guard.h"
#include "client/session/connection.h"
#include "client/wire/codec.h"
#include "proto/boundary/share_limits.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kWatchSliceMost{60000};  // if the broker states no limit
// While an earlier request is unanswered, new events may be in its answer. The client checks for it at this interval.
constexpr milliseconds kWatchSliceBehind{20};

}  // namespace

std::string_view NameOf(EventKind kind) {
  // In the order of their numbers.
  constexpr std::array<std::string_view, 10> kNames{"unknown",  "allocate",      "publish",     "acquire", "release",
                                                    "withdraw", "session_begin", "session_end", "refusal", "quota"};
  return kNames[kind <= EventKind::kQuota ? static_cast<size_t>(kind) : 0];
}

Watch::Feed::Feed(std::shared_ptr<Session> session, const Broker::Options& options, uint64_t id)
    : session_(std::move(session)), options_(options), id_(id), forks_(ForkGeneration()) {}

Watch::Feed::~Feed() {
  if (is_inherited()) {
    // The session belongs to the parent. The child leaks its reference, and touches neither the socket nor the locks.
    static_cast<void>(new std::shared_ptr<Session>(std::move(session_)));
    return;
  }
  if (!closed_.load()) CloseById(*session_, id_, steady_clock::now() + options_.timeout);
}

void Watch::Feed::CloseById(Session& session, uint64_t watch, std::optional<Deadline> deadline) {
  // If the broker does not take the message in time, the end of the connection closes the watch.
  const wire::WatchRequest request{.watch = watch, .close = true};
  static_cast<void>(session.lifeline().Post(Verb::kWatch, wire::Encode(request), deadline));
}

bool Watch::Feed::is_inherited() const { return forks_ != ForkGeneration(); }

Status Watch::Feed::CheckHere() const {
  if (is_inherited()) {
    return Unavailable("this watch belongs to the parent process: open a new one in the forked child")
        .Because("WATCH_LOST");
  }
  if (closed_.load()) return NotFound("this watch was closed").Because("WATCH_NOT_OPEN");
  if (!session_->lifeline().lost()) return Ok();
  return Unavailable("the watch ended with the connection to the broker: open it again").Because("WATCH_LOST");
}

Status Watch::Feed::Ask(milliseconds slice) {
  const Deadline deadline = steady_clock::now() + slice + options_.timeout;
  const auto handler = [weak = weak_from_this()](const Result<Answer>& answer) {
    if (const auto self = weak.lock()) self->Arrived(answer);
  };
  const std::string request =
      wire::Encode(wire::WatchRequest{.watch = id_, .timeout_ms = static_cast<uint64_t>(slice.count())});
  auto answer = session_->Call(Verb::kWatch, request, deadline, handler);
  if (!answer.ok() && answer.status().reason() == Lifeline::kUnanswered) {
    const MutexLock lock(mutex_);
    ++unanswered_;
    return answer.status();
  }
  {
    const MutexLock lock(mutex_);
    ++unanswered_;  // Arrived decrements it
  }
  Arrived(answer);
  return Ok();
}

void Watch::Feed::Arrived(const Result<Answer>& answer) {
  auto events = answer.ok() ? codec::DecodeEvents(answer->payload) : answer.status();
  const MutexLock lock(mutex_);
  --unanswered_;  // may be negative for a moment, before Ask counts the request
  if (!events.ok()) {
    failed_ = events.status();
    return;
  }
  std::move(events->begin(), events->end(), std::back_inserter(kept_));
}

bool Watch::Feed::is_behind() {
  const MutexLock lock(mutex_);
  return unanswered_ != 0;
}

std::optional<Result<Event>> Watch::Feed::TakeKept() {
  const MutexLock lock(mutex_);
  if (!kept_.empty()) {
    Event first = std::move(kept_.front());
    kept_.pop_front();
    return first;
  }
  if (!failed_.ok()) return std::exchange(failed_, Ok());
  return std::nullopt;
}

Result<Event> Watch::Feed::Next(std::optional<milliseconds> timeout) {
  const std::optional<Deadline> until = DeadlineAfter(timeout);
  for (bool first = true;; first = false) {
    AB_RETURN_IF_ERROR(CheckHere());
    const bool behind = is_behind();
    if (behind) session_->lifeline().ReadArrived();
    if (auto kept = TakeKept()) {
      // An error caused by the lost connection ends this watch.
      if (!kept->ok() && session_->lifeline().lost()) return CheckHere();
      return *std::move(kept);
    }
    if (!first && until && steady_clock::now() >= *until) {
      return DeadlineExceeded("no event arrived in time").Because("NO_EVENT");
    }
    AB_RETURN_IF_ERROR(Ask(session_->SliceOf(until, behind ? kWatchSliceBehind : kWatchSliceMost)));
  }
}

Status Watch::Feed::Close() {
  if (is_inherited() || closed_.exchange(true)) return Ok();
  if (session_->lifeline().lost()) return Ok();
  const Deadline deadline = steady_clock::now() + options_.timeout;
  const wire::WatchRequest request{.watch = id_, .close = true};
  const Status closed = session_->Call(Verb::kWatch, wire::Encode(request), deadline).status();
  const bool gone = closed.reason() == "WATCH_NOT_OPEN" || session_->lifeline().lost();
  return gone ? Ok() : closed;
}

Result<Event> Watch::Next(std::optional<milliseconds> timeout) { return feed_->Next(timeout); }
Status Watch::Close() { return feed_->Close(); }

Result<Watch> Broker::OpenWatch(const WatchOptions& options) {
  AB_RETURN_IF_ERROR(CheckText("a prefix", options.name_prefix));
  wire::WatchRequest message{.namespace_ = this->options().ns, .name_prefix = options.name_prefix};
  for (const EventKind kind : options.kinds) message.kinds.push_back(static_cast<wire::EventKind>(kind));
  // Otherwise the buffer of a watch whose caller has given up would fill up, and the broker would cut it.
  const auto late = [](Session& session, const wire::WatchResponse& opened) {
    arraybridge::Watch::Feed::CloseById(session, opened.watch, std::nullopt);
  };
  const Deadline deadline = steady_clock::now() + this->options().timeout;
  AB_ASSIGN_OR_RETURN(auto opened,
                      connection()->Ask<wire::WatchResponse>(Verb::kWatch, wire::Encode(message), deadline, late));
  if (opened.first.watch == 0) return codec::Malformed("watch");
  return Watch(std::make_shared<Watch::Feed>(opened.second, this->options(), opened.first.watch));
}

}  // namespace arraybridge
