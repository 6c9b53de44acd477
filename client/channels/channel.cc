// SPDX-License-Identifier: Apache-2.0
// A long wait is several requests, each as long as the broker allows. An array that arrives after its caller was
// interrupted or ran out of time is kept here, and the next call returns it.
#include "client/channels/channel.h"

#include <arraybridge/bundle.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "client/arenas/placement_range.h"
#include "client/process/fork_guard.h"
#include "client/shares/acquire.h"
#include "client/shares/forward.h"
#include "client/shares/placement.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kSliceMost{60000};  // of a broker that does not say
// While an earlier request has no answer, what comes may come for that one: it is looked for so often.
constexpr milliseconds kSliceBehind{20};

// The number of the notice that this refusal is; nothing: it is none.
std::optional<uint64_t> NoticeOf(const Status& refusal) {
  for (const auto& [key, value] : refusal.metadata()) {
    uint64_t number = 0;
    if (key != "notice") continue;
    if (std::from_chars(value.data(), value.data() + value.size(), number).ec == std::errc()) return number;
  }
  return std::nullopt;
}

bool MayWaitOn(const Status& refusal) {
  return refusal.code() == Code::kDeadlineExceeded &&
         (refusal.reason() == "CHANNEL_FULL" || refusal.reason() == "CHANNEL_EMPTY");
}

}  // namespace

Channel::End::End(std::shared_ptr<Session> session, const Broker::Options& options, std::string name, Role role,
                  const wire::OpenChannelResponse& opened)
    : session_(std::move(session)),
      options_(options),
      name_(std::move(name)),
      role_(role),
      id_(opened.channel),
      capacity_(opened.capacity),
      mode_(static_cast<ChannelMode>(opened.mode)),
      forks_(ForkGeneration()),
      seen_notice_(opened.seen_notice) {}

Channel::End::~End() {
  if (is_inherited()) {
    // The parent's: neither its socket nor its locks are this process's to touch.
    static_cast<void>(new std::shared_ptr<Session>(std::move(session_)));
    return;
  }
  while (auto kept = TakeWaiting().kept) GiveBackLate(*session_, *std::move(kept));
  if (!closed_.load()) AbandonById(*session_, id_, steady_clock::now() + options_.timeout);
}

void Channel::End::AbandonById(Session& session, uint64_t channel, std::optional<Deadline> deadline) {
  // The end of the connection closes what a broker did not take in time.
  const wire::CloseChannelRequest request{.channel = channel, .abandoned = true};
  static_cast<void>(session.lifeline().Post(Verb::kCloseChannel, wire::Encode(request), deadline));
}

bool Channel::End::is_inherited() const { return forks_ != ForkGeneration(); }

Status Channel::End::CheckHere() const {
  if (is_inherited()) {
    return Unavailable("this end of channel '", name_, "' is the parent's: open it again in a forked child")
        .Because("CHANNEL_LOST");
  }
  if (closed_.load()) return NotFound("this end of channel '", name_, "' was closed").Because("CHANNEL_NOT_OPEN");
  if (!session_->lifeline().lost()) return Ok();
  return Unavailable("channel '", name_, "' went with an earlier connection: open it again").Because("CHANNEL_LOST");
}

// If the connection is lost, this end is closed; returns that instead of the original error.
Status Channel::End::Explain(Status failed) const {
  if (failed.code() != Code::kUnavailable || !session_->lifeline().lost()) return failed;
  return CheckHere();
}

// Two threads that wait in one end get the same notice: each call says what had been seen when it began.
bool Channel::End::GoesOn(const Status& refusal, PeerDeath on_peer_death, uint64_t* seen) {
  const std::optional<uint64_t> notice = NoticeOf(refusal);
  if (!notice) return false;
  *seen = *notice;
  uint64_t before = seen_notice_.load();
  while (before < *notice && !seen_notice_.compare_exchange_weak(before, *notice)) continue;
  return on_peer_death == PeerDeath::kWait && refusal.code() == Code::kAborted;
}

Status Channel::End::Send(const Placement& placement, const SendOptions& options) {
  const Broker::PublishOptions description{.name = {}, .structure = options.structure, .metadata = options.metadata};
  const Until until = DeadlineAfter(options.timeout);
  uint64_t seen = options.seen_notice.value_or(seen_notice_.load());
  while (true) {
    AB_RETURN_IF_ERROR(CheckHere());
    if (!placement.forward() && placement.range()->releases.get() != &session_->releases()) {
      return Unavailable("the memory of this placement went with an earlier connection; place it again")
          .Because("PLACEMENT_LOST");
    }
    auto direct = placement.forward() ? std::nullopt : SendDirect(placement, options, until);
    if (direct) return Explain(*std::move(direct));
    const milliseconds slice = session_->SliceOf(until, kSliceMost);
    const IntoChannel into{id_, static_cast<uint64_t>(slice.count()), seen};
    const Deadline deadline = steady_clock::now() + slice + options_.timeout;
    const auto publish = placement.forward() ? PublishForward : PublishPlacement;
    const auto sent = publish(*session_, options_.ns, placement, description, deadline, into);
    if (sent.ok()) return Ok();
    if (GoesOn(sent.status(), options.on_peer_death, &seen)) continue;
    if (!MayWaitOn(sent.status()) || IsOver(until)) return Explain(sent.status());
  }
}

Status Channel::End::Check(PeerDeath on_peer_death, uint64_t* seen) {
  AB_RETURN_IF_ERROR(CheckHere());
  if (role_ != Role::kSender) {
    return FailedPrecondition("this end of channel '", name_, "' receives").Because("WRONG_END");
  }
  Status status;
  do {
    const Deadline deadline = steady_clock::now() + options_.timeout;
    const wire::ReceiveRequest request{.channel = id_, .seen_notice = *seen};
    status = session_->Call(Verb::kReceive, wire::Encode(request), deadline).status();
  } while (GoesOn(status, on_peer_death, seen));
  // An earlier broker tells a sender nothing in this way.
  return status.ok() || status.reason() == "WRONG_END" ? Ok() : Explain(status);
}

Status Channel::End::Ask(milliseconds slice, uint64_t seen) {
  const Deadline deadline = steady_clock::now() + slice + options_.timeout;
  const auto handler = [weak = weak_from_this(), session = session_->weak_from_this()](Result<Answer> answer) {
    if (const auto self = weak.lock()) return self->Arrived(std::move(answer));
    if (const auto its = session.lock()) GiveBackLate(*its, answer);
  };
  bool revoke = false;
  {
    const MutexLock lock(mutex_);
    revoke = std::exchange(revoke_, false);
    ++asking_;
  }
  const std::string request = wire::Encode(wire::ReceiveRequest{
      .channel = id_, .timeout_ms = static_cast<uint64_t>(slice.count()), .seen_notice = seen, .revoke = revoke});
  auto answer = session_->Call(Verb::kReceive, request, deadline, handler);
  Status status = answer.status();
  const MutexLock lock(mutex_);
  --asking_;
  if (status.ok()) {
    kept_.push_back(*std::move(answer));
    CountReceived();
  }
  if (status.reason() == Lifeline::kUnanswered) ++unanswered_;
  return status;
}

void Channel::End::Arrived(Result<Answer> answer) {
  MutexLock lock(mutex_);
  --unanswered_;  // below zero for a moment if this is quicker than who gave up
  if (!answer.ok()) return;
  kept_.push_back(*std::move(answer));
  CountReceived();
}

Channel::End::Waiting Channel::End::TakeWaiting() {
  MutexLock lock(mutex_);
  Waiting waiting{unanswered_ != 0, std::nullopt, consumer_, received_};
  if (kept_.empty()) return waiting;
  waiting.kept = std::move(kept_.front());
  kept_.pop_front();
  return waiting;
}

Result<Acquired> Channel::End::Receive(const ReceiveOptions& options) {
  const Until until = DeadlineAfter(options.timeout);
  uint64_t seen = seen_notice_.load();
  while (true) {
    AB_RETURN_IF_ERROR(CheckHere());
    Waiting waiting = TakeWaiting();
    const bool behind = waiting.behind;
    if (behind && !waiting.kept) {
      session_->lifeline().ReadArrived();
      waiting = TakeWaiting();
    }
    if (!waiting.kept) {
      const auto consumer = Standing(std::move(waiting.consumer));
      const uint64_t counted = consumer && consumer->opened() ? consumer->calls() : 0;
      if (auto received = ReceiveDirect(consumer, waiting.received, options, until)) return *std::move(received);
      const milliseconds slice = session_->SliceOf(until, behind ? kSliceBehind : kSliceMost);
      const Status status = Ask(slice, seen);
      if (status.ok() || GoesOn(status, options.on_peer_death, &seen)) continue;
      if (status.reason() == "CHANNEL_IS_DIRECT") {
        CaughtUp(counted);
        if (IsOver(until))
          return DeadlineExceeded("nothing came in channel '", name_, "' in time").Because("CHANNEL_EMPTY");
        continue;
      }
      const MutexLock lock(mutex_);
      if (kept_.empty() && (!MayWaitOn(status) || IsOver(until))) return Explain(status);
      continue;
    }
    const Deadline deadline = steady_clock::now() + options_.timeout;
    auto taken = TakeGranted(*session_, *std::move(waiting.kept), 1, options.mode, deadline);
    if (!taken.ok()) return Explain(taken.status());
    return std::move(taken->front());
  }
}

Status Channel::End::Close(bool complete) {
  if (!is_inherited() && closed_.load()) return Ok();
  AB_RETURN_IF_ERROR(CheckHere());
  if (closed_.exchange(true)) return Ok();
  const Deadline deadline = steady_clock::now() + options_.timeout;
  const wire::CloseChannelRequest request{.channel = id_, .abandoned = !complete};
  return session_->Call(Verb::kCloseChannel, wire::Encode(request), deadline).status();
}

const std::string& Channel::name() const { return end_->name(); }
uint64_t Channel::capacity() const { return end_->capacity(); }
ChannelMode Channel::mode() const { return end_->mode(); }
Status Channel::Send(const Placement& placement, const SendOptions& options) {
  AB_RETURN_IF_ERROR(Bundle::CheckContent(options.structure, placement.described()));
  return end_->Send(placement, options);
}
uint64_t Channel::seen_notice() const { return end_->seen_notice(); }
Status Channel::Check(PeerDeath on_peer_death, uint64_t* seen) { return end_->Check(on_peer_death, seen); }
bool Channel::TrySend(std::span<const View> sources, const SendOptions& options) {
  return Bundle::CheckContent(options.structure, sources).ok() && end_->TrySend(sources, options);
}
Result<Acquired> Channel::Receive(const ReceiveOptions& options) { return end_->Receive(options); }
std::optional<Result<Acquired>> Channel::TryReceive(MapMode mode) { return end_->TryReceive(mode); }
Status Channel::Close() { return end_->Close(true); }
Status Channel::Abandon() { return end_->Close(false); }

}  // namespace arraybridge
