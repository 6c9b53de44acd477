// SPDX-License-Identifier: Apache-2.0
#include "client/services/caller.h"

#include <algorithm>
#include <utility>

namespace arraybridge {

using services::Content;
using services::IsNotice;
using services::Mailbox;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Until = std::optional<Deadline>;

namespace {

constexpr size_t kUnsentMax = 256;  // letters that wait for room in the boxes of servers

}  // namespace

ServiceCaller::Core::Core(Broker& broker, std::string service, MapMode mode, std::string id, Boxes boxes)
    : broker_(broker), service_(std::move(service)), mode_(mode), id_(std::move(id)), boxes_(std::move(boxes)) {}

ServiceCaller::Core::~Core() { Close(); }

void ServiceCaller::Core::Close() {
  FailAll(Unavailable("the caller of service '", service_,
                      "' was closed here: open another one with "
                      "ServiceCaller::Open; the outcome of a call that was open is unknown")
              .Because("CALLER_CLOSED"));
  std::thread ended;
  {
    const MutexLock lock(mutex_);
    ended.swap(thread_);
  }
  if (ended.joinable()) ended.join();
}

ServiceCaller::Core::ACall ServiceCaller::Core::Begin(std::vector<View> value, const CallOptions& options, Kind kind) {
  const bool waits = kind == Kind::kWaits;
  const MutexLock lock(mutex_);
  ACall call(new services::Call{.number = ++number_,
                                .views = std::move(value),
                                .structure = options.structure,
                                .timeout = options.timeout,
                                .due = DeadlineAfter(options.timeout),
                                .waits = waits,
                                .streams = kind == Kind::kStreams});
  if (!waits) ++submitted_;
  calls_[call->number] = call;
  if (!lost_.ok()) Finish(*call, lost_);
  return call;
}

Result<Acquired> ServiceCaller::Core::Call(std::span<const View> value, const CallOptions& options) {
  const ACall call = Begin({value.begin(), value.end()}, options, Kind::kWaits);
  Announce(*call);
  while (true) {
    {
      const MutexLock lock(mutex_);
      if (call->outcome) return *std::move(call->outcome);
    }
    Give(*call);
    Status read = call->is_over() ? call->TimedOut(service_) : Step(call->due);
    if (read.code() == Code::kCancelled) TakeBack(*call, [&] { return read; });
    if (call->is_over()) TakeBack(*call, [&] { return call->TimedOut(service_); });
  }
}

std::future<Result<Acquired>> ServiceCaller::Core::Submit(std::vector<View> value, const CallOptions& options) {
  const ACall call = Begin(std::move(value), options, Kind::kSubmitted);
  auto future = call->promise.get_future();
  SubmitTicket(call);
  return future;
}

ServiceCaller::Core::ACall ServiceCaller::Core::Stream(std::vector<View> value, const CallOptions& options) {
  ACall call = Begin(std::move(value), options, Kind::kStreams);
  SubmitTicket(call);
  return call;
}

void ServiceCaller::Core::SubmitTicket(const ACall& call) {
  const bool sent = boxes_.tickets.TryPost(call->LetterOf(services::kTicket, id_));
  const MutexLock lock(mutex_);
  call->ticket_due = !sent;
  if (lost_.ok() && !thread_.joinable()) thread_ = std::thread([this] { ServeSubmitted(); });
  changed_.NotifyAll();
}

Result<std::optional<Acquired>> ServiceCaller::Core::NextOf(services::Call& call) {
  while (true) {
    if (auto taken = TakeItem(call)) {
      SendUnsent();
      return *std::move(taken);
    }
    Give(call);
    AB_RETURN_IF_ERROR(Step(call.due));
    if (call.is_over()) TakeBack(call, [&] { return call.TimedOut(service_); });
  }
}

std::optional<Result<std::optional<Acquired>>> ServiceCaller::Core::TakeItem(services::Call& call) {
  const MutexLock lock(mutex_);
  if (call.items.empty()) {
    if (!call.outcome) return std::nullopt;
    if (call.outcome->ok()) return std::optional<Acquired>();
    return call.outcome->status();
  }
  std::optional<Acquired> item(std::move(call.items.front()));
  call.items.pop_front();
  constexpr uint64_t kStep = services::kRoom / 2;
  if (++call.taken % kStep == 0 && !call.outcome && unsent_.size() < kUnsentMax) {
    unsent_.emplace_back(call.server, ServiceLetter{services::kMore, id_, call.number, 0, {}, false, {}, kStep});
  }
  return item;
}

void ServiceCaller::Core::Announce(services::Call& call) {
  while (true) {
    {
      const MutexLock lock(mutex_);
      if (call.outcome || !call.server.empty()) return;
    }
    const Until& due = call.due;
    const auto left = due ? std::optional(call.Left(milliseconds::max())) : std::nullopt;
    const Status sent = boxes_.tickets.Post(call.LetterOf(services::kTicket, id_), left);
    if (sent.ok()) return;
    if (IsNotice(sent)) continue;
    if (sent.code() == Code::kDeadlineExceeded) return TakeBack(call, [&] { return call.TimedOut(service_); });
    return FinishIfOpen(call, sent);
  }
}

Status ServiceCaller::Core::Step(Until until) {
  {
    const MutexLock lock(mutex_);
    if (reading_) {
      constexpr milliseconds kLongest{1000};
      const Deadline at = steady_clock::now() + kLongest;
      changed_.WaitUntil(mutex_, until ? std::min(*until, at) : at);
      return Ok();
    }
    reading_ = true;
  }
  Status read = ReadOne(until);
  const MutexLock lock(mutex_);
  reading_ = false;
  changed_.NotifyAll();
  return read;
}

void ServiceCaller::Core::ServeSubmitted() {
  while (true) {
    {
      const MutexLock lock(mutex_);
      while (submitted_ == 0 && lost_.ok()) changed_.Wait(mutex_);
      if (!lost_.ok()) return;
    }
    // Options::interrupted is for threads of the user.
    static_cast<void>(Step(ExpireSubmitted()));
    GiveSubmitted();
  }
}

void ServiceCaller::Core::Give(services::Call& call) {
  std::optional<Mailbox> server;
  std::string id;
  {
    const MutexLock lock(mutex_);
    server = std::exchange(call.give_to, std::nullopt);
    id = call.server;
    if (!server) return;
  }
  const Content content{call.views, call.structure};
  const Status sent = server->Post(call.LetterOf(services::kGo, id_), call.Left(broker_.options().timeout), &content);
  const MutexLock lock(mutex_);
  call.giving = false;
  changed_.NotifyAll();
  if (sent.ok() || call.outcome || call.server != id) return;  // that server may have ended meanwhile
  if (IsNotice(sent)) {                                        // the server has not got it
    call.server.clear();
    call.ticket_due = true;
    return;
  }
  Finish(call, sent);  // it cannot be sent to any server
  server->TryPost({.kind = services::kNo, .peer = id_, .number = call.number});
}

void ServiceCaller::Core::GiveSubmitted() {
  for (const ACall& call : CallsThat([](const services::Call& each) { return !each.waits && each.give_to; })) {
    Give(*call);
  }
}

Until ServiceCaller::Core::ExpireSubmitted() {
  Until soonest;
  for (const ACall& call : CallsThat([](const services::Call& each) { return !each.waits; })) {
    if (call->is_over())
      TakeBack(*call, [&] { return call->TimedOut(service_); });
    else if (call->due)
      soonest = soonest ? std::min(*soonest, *call->due) : call->due;
  }
  return soonest;
}

void ServiceCaller::Core::TakeBack(services::Call& call, const std::function<Status()>& why) {
  {
    const MutexLock lock(mutex_);
    const bool given = !std::exchange(call.give_to, std::nullopt);
    if (!given) call.giving = false;
    while (call.giving) changed_.Wait(mutex_);  // a thread reads the arrays, which are the user's again afterwards
    if (call.outcome) return;
    call.withdrawn = true;
    Finish(call, why());
    if (call.server.empty() || unsent_.size() >= kUnsentMax) return;
    unsent_.emplace_back(call.server, call.LetterOf(given ? services::kCancel : services::kNo, id_));
  }
  SendUnsent();
}

void ServiceCaller::Core::SendUnsent() {
  std::deque<std::pair<std::string, ServiceLetter>> unsent;
  std::map<std::string, Mailbox> servers;
  {
    const MutexLock lock(mutex_);
    if (unsent_.empty()) return;
    unsent.swap(unsent_);
    servers = servers_;
  }
  std::erase_if(unsent, [&servers](const auto& letter) {
    const auto server = servers.find(letter.first);
    return server == servers.end() || server->second.TryPost(letter.second);
  });
  const MutexLock lock(mutex_);
  unsent_.insert(unsent_.begin(), unsent.begin(), unsent.end());
}

void ServiceCaller::Core::Finish(services::Call& call, Result<Acquired> outcome) {
  const ACall kept = std::exchange(calls_[call.number], nullptr);
  calls_.erase(call.number);
  if (!call.waits) --submitted_;
  if (call.waits || call.streams) {
    call.outcome.emplace(std::move(outcome));
  } else {
    call.outcome.emplace(Internal("it went to the future"));
    call.promise.set_value(std::move(outcome));
  }
  changed_.NotifyAll();
}

void ServiceCaller::Core::FinishIfOpen(services::Call& call, Result<Acquired> outcome) {
  const MutexLock lock(mutex_);
  if (!call.outcome) Finish(call, std::move(outcome));
}

void ServiceCaller::Core::FailAll(const Status& why) {
  std::map<std::string, Mailbox> servers;
  {
    const MutexLock lock(mutex_);
    if (!lost_.ok()) return;
    lost_ = why;
    while (!calls_.empty()) {
      const ACall call = calls_.begin()->second;
      Finish(*call, why);
    }
    servers.swap(servers_);
    changed_.NotifyAll();
  }
  for (Mailbox* box : {&boxes_.answers, &boxes_.presence, &boxes_.tickets}) box->Abandon();
  for (auto& [id, server] : servers) server.Abandon();
}

std::vector<ServiceCaller::Core::ACall> ServiceCaller::Core::CallsThat(
    const std::function<bool(const services::Call&)>& holds) {
  const MutexLock lock(mutex_);
  std::vector<ACall> found;
  for (const auto& [number, call] : calls_) {
    if (holds(*call)) found.push_back(call);
  }
  return found;
}

}  // namespace arraybridge
