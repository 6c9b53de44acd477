// SPDX-License-Identifier: Apache-2.0
#include "client/services/server.h"

#include <algorithm>
#include <thread>

#include "client/services/letters.h"

namespace arraybridge {

using services::Content;
using services::IsNotice;
using services::Mailbox;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr milliseconds kSlow{60000};      // how long a caller that did not answer in time is not waited for
constexpr milliseconds kCallerLook{100};  // how often it looks whether the callers live that it has asked
constexpr milliseconds kOtherReads{5};    // how long it sleeps while another thread reads
constexpr size_t kAsideMax = 1024;        // requests of slow callers that it has asked for

// The caller has ended, or its time is over.
bool IsWaitingNoLonger(const Status& sent, bool is_limited) {
  return IsNotice(sent) || (is_limited && sent.code() == Code::kDeadlineExceeded);
}

std::optional<milliseconds> LeftOf(const std::optional<Deadline>& until) {
  return until ? std::optional(TimeUntil(until)) : std::nullopt;
}

}  // namespace

Service::Core::Core(Broker& broker, std::string service, const Options& options, std::string id, Boxes boxes)
    : broker_(broker),
      service_(std::move(service)),
      options_(options),
      id_(std::move(id)),
      boxes_(std::move(boxes)),
      figures_(broker_, service_, id_) {}

Result<ServiceRequest> Service::Core::Receive(std::optional<milliseconds> timeout) {
  const auto until = DeadlineAfter(timeout);
  const MutexLock turn(receiving_);
  while (true) {
    ReadArrived(milliseconds(0));  // what callers say finds room then
    if (auto given = TakeGiven()) return *std::move(given);
    if (IsAwaiting()) {
      {
        const MutexLock lock(reading_);
        AB_RETURN_IF_ERROR(ReadOne(kCallerLook));
      }
      Look();
      continue;
    }
    const Deadline look = steady_clock::now() + kCallerLook;
    const bool sooner = Look() && (!until || look < *until);
    const Status asked = AskForNext(sooner ? look : until);
    const bool is_late = asked.code() == Code::kDeadlineExceeded;
    if (sooner && is_late) continue;
    if (!is_late) {
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

bool Service::Core::IsExpecting() {
  const MutexLock lock(mutex_);
  return !held_.empty() || !asked_.empty();
}

bool Service::Core::IsAwaiting() {
  const MutexLock lock(mutex_);
  return std::ranges::any_of(asked_, [](const auto& each) { return each.second.awaited; });
}

Status Service::Core::AskForNext(std::optional<Deadline> until) {
  while (true) {
    const auto message = boxes_.tickets.Next(MapMode::kShared, LeftOf(until));
    if (IsNotice(message.status())) continue;  // of callers, which come and go
    AB_RETURN_IF_ERROR(message.status());
    const auto ticket = ServiceLetter::Of(message->share->metadata);
    if (ticket && ticket->kind == services::kTicket) return Ask(*ticket, message->sent.time_ns);
  }
}

Status Service::Core::Ask(const ServiceLetter& ticket, uint64_t called_ns) {
  const auto now = static_cast<uint64_t>(std::chrono::nanoseconds(steady_clock::now().time_since_epoch()).count());
  if (ticket.due_ns != 0 && now >= ticket.due_ns) return Ok();
  auto answers = AnswersTo(ticket.peer);
  if (!answers) return Ok();
  const Key key(ticket.peer, ticket.number);
  const ServiceLetter letter{.kind = services::kAsk, .peer = id_, .number = ticket.number, .retry = options_.retry};
  if (!IsToBeAsked(key, letter, called_ns)) return Ok();
  Status sent = answers->Post(letter, services::kPatience);
  if (sent.ok()) return sent;
  if (sent.code() == Code::kDeadlineExceeded) {  // its caller sends the ticket again when it reads again
    Lapse(key);
    return Ok();
  }
  {
    const MutexLock lock(mutex_);
    asked_.erase(key);
  }
  if (!IsNotice(sent)) return sent;
  Lose(ticket.peer);
  return Ok();
}

bool Service::Core::IsToBeAsked(const Key& key, const ServiceLetter& question, uint64_t called_ns) {
  const Deadline now = steady_clock::now();
  const MutexLock lock(mutex_);
  const auto known = slow_.find(key.first);
  const bool is_slow = known != slow_.end() && now < known->second;
  if (held_.contains(key) || (is_slow && asked_.size() >= kAsideMax)) return false;
  const Deadline until = now + (is_slow ? kSlow : services::kPatience);
  const bool is_new = asked_.emplace(key, Asked{until, !is_slow, called_ns}).second;
  if (is_new && is_slow) unsent_.emplace(key, question);
  return is_new && !is_slow;
}

void Service::Core::Lapse(const Key& key) {
  const MutexLock lock(mutex_);
  asked_.erase(key);
  unsent_.erase(key);
  if (answers_.contains(key.first)) slow_[key.first] = steady_clock::now() + kSlow;
}

void Service::Core::ReadArrived(milliseconds wait) {
  if (!IsExpecting()) return;  // no caller says anything
  if (!reading_.try_lock()) return std::this_thread::sleep_for(std::min(wait, kOtherReads));
  if (wait.count() > 0) static_cast<void>(ReadOne(wait));
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
  ARequest request;  // destroyed without the lock
  const MutexLock lock(mutex_);
  if (letter->kind == services::kNo) asked_.erase(key);
  if (const auto found = held_.find(key); found != held_.end()) request = found->second.lock();
  if (request && letter->kind == services::kCancel) request->Cancel();
  if (request && letter->kind == services::kMore) request->AddRoom(letter->room);
}

void Service::Core::Given(const ServiceLetter& letter, Acquired message) {
  const auto request = std::make_shared<ServiceRequest::Core>(shared_from_this(), letter, std::move(message));
  {
    const MutexLock lock(mutex_);
    const auto asked = asked_.find(request->key());
    if (!closed_ && asked != asked_.end()) {
      request->called_ns = asked->second.called_ns;
      asked_.erase(asked);
      held_[request->key()] = request;
      given_.push_back(request);
      return;
    }
  }
  const ServiceLetter back{.kind = services::kBack, .peer = id_, .number = letter.number};
  auto answers = AnswersTo(letter.peer);
  if (!answers || answers->TryPost(back)) return;
  const MutexLock lock(mutex_);
  if (unsent_.size() < kAsideMax) unsent_.emplace(request->key(), back);
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

bool Service::Core::Look() {
  std::map<Key, Asked> asked;
  std::map<Key, ServiceLetter> unsent;
  {
    const MutexLock lock(mutex_);
    asked = asked_;
    unsent = unsent_;
  }
  for (const auto& [key, question] : asked) {
    auto answers = AnswersTo(key.first);
    if (!answers || answers->OwnerIsGone()) {
      Lose(key.first);
    } else if (steady_clock::now() >= question.until) {
      Lapse(key);
    }
  }
  for (const auto& [key, letter] : unsent) {
    auto answers = AnswersTo(key.first);
    if (answers && !answers->TryPost(letter)) continue;
    const MutexLock lock(mutex_);
    unsent_.erase(key);
  }
  return !asked.empty() || !unsent.empty();
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
    slow_.erase(caller);
    std::erase_if(asked_, [&](const auto& each) { return each.first.first == caller; });
    std::erase_if(unsent_, [&](const auto& each) { return each.first.first == caller; });
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
    if (!IsWaitingNoLonger(sent, left.has_value())) AB_RETURN_IF_ERROR(sent);
    waits = waits && sent.ok();
  }
  if (letter.kind != services::kItem) Release(request, letter.kind == services::kFailed);
  return waits && answers.has_value();
}

void Service::Core::Release(const ServiceRequest::Core& request, bool failed) {
  figures_.Note(request.called_ns, failed);
  const MutexLock lock(mutex_);
  held_.erase(request.key());
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
    unsent_.clear();
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
  figures_.Withdraw();
  boxes_.presence.Abandon();  // each caller is told that a ticket may be lost
}

}  // namespace arraybridge
