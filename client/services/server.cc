// SPDX-License-Identifier: Apache-2.0
#include "client/services/server.h"

#include <algorithm>

#include "client/services/letters.h"

namespace arraybridge {

using services::Content;
using services::IsNotice;
using services::Mailbox;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

// How long it waits for a caller that lives and does not answer: it was stopped, or has no memory.
constexpr milliseconds kAsk{5000};
constexpr milliseconds kCallerLook{100};  // how often it looks whether the caller lives that it has asked

std::optional<milliseconds> LeftOf(const std::optional<Deadline>& until) {
  return until ? std::optional(TimeUntil(until)) : std::nullopt;
}

}  // namespace

Service::Core::Core(Broker& broker, std::string service, const Options& options, std::string id, Boxes boxes)
    : broker_(broker), service_(std::move(service)), options_(options), id_(std::move(id)), boxes_(std::move(boxes)) {}

Result<ServiceRequest> Service::Core::Receive(std::optional<milliseconds> timeout) {
  const auto until = DeadlineAfter(timeout);
  const MutexLock turn(receiving_);
  while (true) {
    if (IsHolding()) ReadArrived();  // what their callers say finds room then
    if (auto given = TakeGiven()) return *std::move(given);
    if (IsAsking()) {
      {
        const MutexLock lock(reading_);
        AB_RETURN_IF_ERROR(ReadOne(kCallerLook));
      }
      DropAsked();
      continue;
    }
    const Status asked = AskForNext(until);
    if (asked.code() != Code::kDeadlineExceeded) {
      AB_RETURN_IF_ERROR(asked);
      continue;
    }
    return DeadlineExceeded("no request for service '", service_, "' of namespace '", broker_.options().ns, "' within ",
                            timeout.value_or(milliseconds(0)).count(),
                            " ms: call it in another process, or pass a larger timeout")
        .Because("NO_REQUEST");
  }
}

std::optional<ServiceRequest> Service::Core::TakeGiven() {
  std::vector<ARequest> dropped;  // destroyed without the lock
  const MutexLock lock(mutex_);
  while (!given_.empty()) {
    ARequest request = std::move(given_.front());
    given_.pop_front();
    if (!request->is_cancelled()) {
      request->Begin();
      return ServiceRequest(std::move(request));
    }
    held_.erase(request->key());
    dropped.push_back(std::move(request));
  }
  return std::nullopt;
}

bool Service::Core::IsHolding() {
  const MutexLock lock(mutex_);
  return !held_.empty();
}

bool Service::Core::IsAsking() {
  const MutexLock lock(mutex_);
  return !asked_.empty();
}

Status Service::Core::AskForNext(std::optional<Deadline> until) {
  while (true) {
    const auto message = boxes_.tickets.Next(MapMode::kShared, LeftOf(until));
    if (IsNotice(message.status())) continue;  // of callers, which come and go
    AB_RETURN_IF_ERROR(message.status());
    const auto ticket = ServiceLetter::Of(message->share->metadata);
    if (ticket && ticket->kind == services::kTicket) return Ask(*ticket);
  }
}

Status Service::Core::Ask(const ServiceLetter& ticket) {
  const auto now = static_cast<uint64_t>(std::chrono::nanoseconds(steady_clock::now().time_since_epoch()).count());
  if (ticket.due_ns != 0 && now >= ticket.due_ns) return Ok();
  auto answers = AnswersTo(ticket.peer);
  if (!answers) return Ok();
  const Key key(ticket.peer, ticket.number);
  {
    const MutexLock lock(mutex_);
    if (held_.contains(key) || !asked_.emplace(key, steady_clock::now() + kAsk).second) return Ok();
  }
  Status sent =
      answers->Post({.kind = services::kAsk, .peer = id_, .number = ticket.number, .retry = options_.retry}, kAsk);
  if (sent.ok()) return sent;
  {
    const MutexLock lock(mutex_);
    asked_.erase(key);
  }
  if (!IsNotice(sent) && sent.code() != Code::kDeadlineExceeded) return sent;
  Lose(ticket.peer);
  return Ok();
}

void Service::Core::ReadArrived() {
  if (!reading_.try_lock()) return;  // another thread reads
  while (ReadOne(milliseconds(0)).ok()) continue;
  reading_.unlock();
}

Status Service::Core::ReadOne(milliseconds wait) {
  if (suspicion_.IsOpen()) wait = std::min(wait, services::Suspicion::kPause);
  auto message = boxes_.requests.Next(options_.mode, wait);
  Status why = message.status();
  if (message.ok()) {
    Handle(*std::move(message));
  } else if (IsNotice(why)) {
    suspicion_.Arise();
  } else if (why.reason() != "CHANNEL_EMPTY") {
    return why;
  }
  Examine();
  if (why.ok() || IsNotice(why) || wait.count() > 0) return Ok();
  return why;
}

void Service::Core::Handle(Acquired message) {
  const auto letter = ServiceLetter::Of(message.share->metadata);
  if (!letter) return;
  if (letter->kind == services::kGo) return Given(*letter, std::move(message));
  const Key key(letter->peer, letter->number);
  ARequest cancelled;  // destroyed without the lock
  const MutexLock lock(mutex_);
  if (letter->kind == services::kNo) asked_.erase(key);
  if (letter->kind != services::kCancel) return;
  if (const auto found = held_.find(key); found != held_.end()) cancelled = found->second.lock();
  if (cancelled) cancelled->Cancel();
}

void Service::Core::Given(const ServiceLetter& letter, Acquired message) {
  const auto request = std::make_shared<ServiceRequest::Core>(shared_from_this(), letter, std::move(message));
  {
    const MutexLock lock(mutex_);
    if (!closed_ && asked_.erase(request->key()) == 1) {
      held_[request->key()] = request;
      given_.push_back(request);
      return;
    }
  }
  if (auto answers = AnswersTo(letter.peer)) {
    answers->TryPost({.kind = services::kBack, .peer = id_, .number = letter.number});
  }
}

void Service::Core::Examine() {
  if (!suspicion_.IsOpen()) return;
  std::map<std::string, Mailbox> answers;
  {
    const MutexLock lock(mutex_);
    answers = answers_;
  }
  for (auto& [caller, box] : answers) {
    if (!box.OwnerIsGone()) continue;
    suspicion_.Confirm();
    Lose(caller);
  }
}

void Service::Core::DropAsked() {
  std::map<Key, Deadline> asked;
  {
    const MutexLock lock(mutex_);
    asked = asked_;
  }
  for (const auto& [key, until] : asked) {
    auto answers = AnswersTo(key.first);
    const bool is_gone = !answers || answers->OwnerIsGone();
    if (is_gone) Lose(key.first);
    const MutexLock lock(mutex_);
    if (is_gone || steady_clock::now() >= until) asked_.erase(key);
  }
}

std::optional<Mailbox> Service::Core::AnswersTo(const std::string& caller) {
  {
    const MutexLock lock(mutex_);
    if (const auto found = answers_.find(caller); found != answers_.end()) return found->second;
    if (closed_) return std::nullopt;
  }
  auto opened = Mailbox::To(broker_, services::ChannelOf(service_, "answers", caller));
  if (!opened.ok() || !*opened) return std::nullopt;
  const MutexLock lock(mutex_);
  return answers_.emplace(caller, **opened).first->second;
}

void Service::Core::Lose(const std::string& caller) {
  std::optional<Mailbox> box;
  std::vector<ARequest> held;  // destroyed without the lock
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, weak] : held_) {
      ARequest request = key.first == caller ? weak.lock() : nullptr;
      if (!request) continue;
      request->Cancel();
      held.push_back(std::move(request));
    }
    if (const auto found = answers_.find(caller); found != answers_.end()) {
      box = found->second;
      answers_.erase(found);
    }
  }
  if (box) box->Discard();
}

Result<bool> Service::Core::Answer(ServiceRequest::Core& request, ServiceLetter letter, const Content* content) {
  // Also of a cancelled request: its caller may want to know what became of it.
  const auto left = request.left();
  bool waits = !request.is_cancelled();
  letter.peer = id_;
  auto answers = left && left->count() == 0 ? std::nullopt : AnswersTo(request.key().first);
  if (answers) {
    const Status sent = answers->Post(letter, left.value_or(broker_.options().timeout), content);
    if (IsNotice(sent)) Lose(request.key().first);
    if (!IsNotice(sent) && !(sent.code() == Code::kDeadlineExceeded && left)) AB_RETURN_IF_ERROR(sent);
    waits = waits && sent.ok();
  }
  const MutexLock lock(mutex_);
  held_.erase(request.key());
  return waits && answers.has_value();
}

void Service::Core::Close() {
  std::map<std::string, ServiceLetter> byes;
  std::map<std::string, Mailbox> answers;
  std::deque<ARequest> given;
  std::vector<ARequest> held;  // destroyed without the lock
  {
    const MutexLock lock(mutex_);
    if (std::exchange(closed_, true)) return;
    answers.swap(answers_);
    given.swap(given_);
    asked_.clear();
    for (const auto& [caller, box] : answers) byes[caller] = {.kind = services::kBye, .peer = id_};
    for (const auto& [key, weak] : held_) {
      ARequest request = weak.lock();
      if (!request) continue;
      request->Cancel();
      request->Close();
      if (request->begun()) byes[key.first].held.push_back(key.second);
      held.push_back(std::move(request));
    }
    held_.clear();
  }
  boxes_.tickets.Close();
  boxes_.requests.Close();
  for (auto& [caller, box] : answers) {
    box.TryPost(byes[caller]);
    box.Abandon();
  }
  boxes_.presence.Abandon();  // each caller is told that a ticket may be lost
}

}  // namespace arraybridge
