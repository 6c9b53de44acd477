// SPDX-License-Identifier: Apache-2.0
// The part of a ServiceCaller::Core that reads letters of servers. One thread at a time is in it.
#include <algorithm>
#include <utility>

#include "client/services/caller.h"
#include "client/services/letters.h"
#include "proto/boundary/boot_time.h"

namespace arraybridge {

using services::IsNotice;
using services::Mailbox;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr milliseconds kPresenceLook{100};  // how often presence is looked at while a call has no server
constexpr milliseconds kTicketDue{5};       // how often tickets are tried that found no room

bool IsOld(const Sent& sent) {
  const std::chrono::nanoseconds age(static_cast<int64_t>(BootTime() - sent.time_ns));
  return age > services::kPatience / 2;
}

}  // namespace

Status ServiceCaller::Core::ReadOne(std::optional<Deadline> until) {
  milliseconds pause = tickets_due_ ? kTicketDue : suspicion_.IsOpen() ? services::Suspicion::kPause : kPresenceLook;
  if (!gone_.empty() || was_slow_) pause = milliseconds(0);
  auto message = boxes_.answers.Next(mode_, TimeUntil(until, pause));
  if (message.ok()) {
    was_slow_ = was_slow_ || IsOld(message->sent);
    Handle(*std::move(message));
  } else if (message.status().reason() == "CHANNEL_EMPTY") {
    AllIsRead();
  } else if (IsNotice(message.status())) {
    suspicion_.Arise();
  } else if (message.status().code() == Code::kCancelled) {
    return message.status();
  } else {
    FailAll(message.status());
    return Ok();
  }
  Examine();
  SendTickets();
  return Ok();
}

void ServiceCaller::Core::AllIsRead() {
  for (const std::string& id : std::exchange(gone_, {})) {
    suspicion_.Confirm();
    Parted(id, nullptr);
  }
  if (!std::exchange(was_slow_, false)) return;
  const auto waiting = CallsThat([](const services::Call& call) { return call.server.empty(); });
  const MutexLock lock(mutex_);
  for (const ACall& call : waiting) call->ticket_due = call->server.empty();
}

void ServiceCaller::Core::Handle(Acquired message) {
  const auto letter = ServiceLetter::Of(message.share->metadata);
  if (!letter) return;
  if (letter->kind == services::kAsk) return Asked(*letter, *message.sent.sender);
  if (letter->kind == services::kBye) return Parted(letter->peer, &letter->held);
  const MutexLock lock(mutex_);
  const auto found = calls_.find(letter->number);
  if (found == calls_.end() || found->second->server != letter->peer) return;  // it is over, and the answer is freed
  Answered(*found->second, *letter, std::move(message));
}

void ServiceCaller::Core::Answered(services::Call& call, const ServiceLetter& letter, Acquired message) {
  const bool ends = letter.kind == services::kAnswer || letter.kind == services::kEnd;
  if (letter.kind == services::kItem || (ends && call.streams)) return AddItem(call, std::move(message), letter);
  if (ends) return Finish(call, std::move(message));
  if (letter.kind == services::kFailed) return Finish(call, services::Call::Failed(service_, letter.text));
  if (letter.kind != services::kBack) return;
  call.server.clear();
  call.ticket_due = true;
}

void ServiceCaller::Core::AddItem(services::Call& call, Acquired message, const ServiceLetter& letter) {
  call.retry = false;  // the next server would send this item again
  if (letter.kind != services::kEnd) call.items.push_back(std::move(message));
  if (letter.kind != services::kItem) return Finish(call, Acquired());
  changed_.NotifyAll();
}

void ServiceCaller::Core::Asked(const ServiceLetter& letter, const Sender& server) {
  auto box = ServerOf(letter.peer);
  if (!box) {
    look_at_ = {};
    return;
  }
  {
    const MutexLock lock(mutex_);
    const auto found = calls_.find(letter.number);
    if (found != calls_.end() && found->second->server.empty() && !found->second->is_over()) {
      const ACall& call = found->second;
      call->server = letter.peer;
      call->server_process = server;
      call->retry = letter.retry;
      call->ticket_due = false;
      call->give_to = *box;
      call->giving = true;
      ++call->tries;
      changed_.NotifyAll();  // the thread that waits for it, or the Core's own, sends it
      return;
    }
  }
  box->TryPost({.kind = services::kNo, .peer = id_, .number = letter.number});
}

std::optional<Mailbox> ServiceCaller::Core::ServerOf(const std::string& id) {
  {
    const MutexLock lock(mutex_);
    if (const auto found = servers_.find(id); found != servers_.end()) return found->second;
  }
  auto opened = Mailbox::To(broker_, services::ChannelOf(service_, "requests", id));
  if (!opened.ok() || !*opened) return std::nullopt;
  const MutexLock lock(mutex_);
  return servers_.insert_or_assign(id, **opened).first->second;
}

void ServiceCaller::Core::Parted(const std::string& id, const std::vector<uint64_t>* held) {
  std::optional<Mailbox> server;
  {
    const MutexLock lock(mutex_);
    if (const auto found = servers_.find(id); found != servers_.end()) {
      server = found->second;
      servers_.erase(found);
    }
  }
  if (server) server->Discard();
  const auto calls = CallsThat([&](const services::Call& call) { return call.server == id; });
  const MutexLock lock(mutex_);
  for (const ACall& call : calls) {
    if (call->outcome) continue;
    const bool is_given = !std::exchange(call->give_to, std::nullopt);
    if (!is_given) call->giving = false;
    const bool may_have_begun = is_given && (held == nullptr || std::ranges::count(*held, call->number) != 0);
    if (may_have_begun && !call->may_retry()) {
      Finish(*call, call->Gone(service_));
      continue;
    }
    call->server.clear();
    call->ticket_due = true;
  }
}

void ServiceCaller::Core::Examine() {
  if (!suspicion_.IsOpen()) return;
  std::map<std::string, Mailbox> servers;
  {
    const MutexLock lock(mutex_);
    servers = servers_;
  }
  for (auto& [id, server] : servers) {
    if (server.OwnerIsGone()) gone_.insert(id);
  }
}

bool ServiceCaller::Core::AServerHasEnded() {
  const Deadline now = steady_clock::now();
  if (now < look_at_) return false;
  look_at_ = now + kPresenceLook;
  bool has_ended = false;
  while (IsNotice(boxes_.presence.Next(MapMode::kShared, milliseconds(0)).status())) has_ended = true;
  return has_ended;
}

void ServiceCaller::Core::SendTickets() {
  SendUnsent();
  auto waiting = CallsThat([](const services::Call& call) { return call.server.empty(); });
  if (waiting.empty()) return;
  const bool a_server_has_ended = AServerHasEnded();
  tickets_due_ = false;
  for (const ACall& call : waiting) {
    {
      const MutexLock lock(mutex_);
      call->ticket_due = call->ticket_due || a_server_has_ended;
      if (!call->ticket_due || call->outcome || !call->server.empty()) continue;
    }
    const bool sent = boxes_.tickets.TryPost(call->LetterOf(services::kTicket, id_));
    const MutexLock lock(mutex_);
    call->ticket_due = !sent && call->server.empty();
    tickets_due_ = tickets_due_ || call->ticket_due;
  }
}

}  // namespace arraybridge
