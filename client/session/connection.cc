// SPDX-License-Identifier: Apache-2.0
#include "client/session/connection.h"

#include <algorithm>
#include <new>
#include <optional>

#include "client/arenas/session_release.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kIdleStepMin{10};
constexpr milliseconds kIdleStepMax{1000};
constexpr milliseconds kNothingToDo{-1};
constexpr milliseconds kSyncTimeout{2000};
// How often a thread that waits for another thread's connect checks whether it is interrupted.
constexpr milliseconds kLook{100};

// Not UNAVAILABLE, because a caller may retry on that code, and the lost publish belongs to an earlier call.
Status PublishLost() {
  return Status(Code::kAborted, "the connection ended before the broker took the publish", "PUBLISH_LOST");
}

Status OutcomeUnknown() {
  return Unavailable("the connection ended before the broker answered this request, or more than ",
                     Outcomes::kRememberedMax, " later requests were given up too: check whether the name exists")
      .Because("OUTCOME_UNKNOWN");
}

}  // namespace

std::shared_ptr<Connection> Connection::Make(const Broker::Options& options) {
  std::shared_ptr<Connection> connection(new Connection(options));
  connection->reclaimer().SetIdle([weak = std::weak_ptr(connection)] {
    const auto self = weak.lock();
    return self ? self->Idle() : kNothingToDo;
  });
  return connection;
}

Connection::Connection(const Broker::Options& options)
    : options_(options),
      shared_{.reclaimer = Reclaimer::Make(ReclaimSessionReleases),
              .mappers = MapperTable::OfThisProcess(options.cuda_driver)} {}

// Arrays that are still alive keep their session, and the reclaimer runs until they are gone.
Connection::~Connection() {
  // Waits for shares whose bytes are not written yet. Without a thread that tracks them, they would be lost with the
  // connection.
  if (const auto session = current(); session && !session->lifeline().lost()) {
    static_cast<void>(session->releases().SyncFences(steady_clock::now() + options_.timeout));
    session->fences().GiveUp();
  }
  reclaimer().Retire();
}

Result<std::shared_ptr<Session>> Connection::Connected(Deadline deadline) {
  std::shared_ptr<Session> dead;  // destroyed outside the lock
  while (true) {
    {
      MutexLock lock(mutex_);
      if (connecting_) connected_.WaitUntil(mutex_, std::min(deadline, steady_clock::now() + kLook));
      if (!connecting_) {
        if (session_ && !session_->lifeline().lost()) return session_;
        dead = std::move(session_);
        connecting_ = true;
        break;
      }
    }
    if (steady_clock::now() >= deadline) return DeadlineExceeded("another thread is still connecting to the broker");
    if (options_.interrupted && options_.interrupted()) {
      return Status(Code::kCancelled, "interrupted while another thread connects to the broker");
    }
  }
  std::optional<Result<std::shared_ptr<Session>>> opened;
  try {
    if (dead) dead->unwaited().GiveUp(PublishLost());
    opened.emplace(Session::Open(options_, shared_, deadline));
  } catch (const std::bad_alloc&) {
    // Other threads wait for this one to connect.
    MutexLock lock(mutex_);
    connecting_ = false;
    connected_.NotifyAll();
    throw;
  }
  MutexLock lock(mutex_);
  connecting_ = false;
  if (opened->ok()) session_ = **opened;
  connected_.NotifyAll();
  return *std::move(opened);
}

std::shared_ptr<Session> Connection::current() const {
  MutexLock lock(mutex_);
  return session_;
}

Result<std::pair<Answer, std::shared_ptr<Session>>> Connection::Call(Verb verb, std::string_view payload,
                                                                     Deadline deadline, const Late& late,
                                                                     const Check& check) {
  for (bool again = true;; again = false) {
    AB_ASSIGN_OR_RETURN(auto session, Connected(deadline));
    if (check) AB_RETURN_IF_ERROR(check(*session));
    Lifeline::CompletionHandler handler;
    if (late) {
      handler = [late, weak = std::weak_ptr(session)](const Result<Answer>& answer) {
        if (const auto self = weak.lock(); self && answer.ok()) late(*self, answer->payload);
      };
    }
    auto answer = session->Call(verb, payload, deadline, handler);
    if (answer.ok()) return std::pair(*std::move(answer), std::move(session));
    if (!again || answer.status().reason() != Lifeline::kNotSent) return answer.status();
  }
}

Status Connection::Confirm(Deadline deadline) {
  const auto session = current();
  if (session && session->unwaited().unconfirmed() > 0 && !session->lifeline().lost()) {
    // The queue delivers this request after the unwaited publishes.
    Status synced = session->releases().Sync({}, deadline);
    if (!synced.ok() && !session->lifeline().lost()) return synced;
  }
  if (session) session->unwaited().Confirm();
  if (session && session->lifeline().lost()) session->unwaited().GiveUp(PublishLost());
  return TakeDeferredErrors();
}

Result<Outcome> Connection::OutcomeOf(const Status& failed, Deadline deadline) {
  const auto key = Outcomes::Key::Of(failed);
  if (!key) return Outcome{.status = failed, .share = {}};
  if (auto known = shared_.outcomes->Find(*key)) return *std::move(known);
  const auto session = current();
  if (session && session->lifeline().nonce() == key->nonce) {
    const Status answered = session->lifeline().AwaitLate(key->request, deadline);
    if (auto known = shared_.outcomes->Find(*key)) return *std::move(known);
    if (!answered.ok()) return failed;
  }
  return OutcomeUnknown();
}

Status Connection::Flush(Deadline deadline) {
  if (!reclaimer().Collect(deadline)) return DeadlineExceeded("a GPU did not finish in time with released memory");
  const auto session = current();
  if (!session || session->lifeline().lost()) return Ok();
  AB_RETURN_IF_ERROR(session->releases().SyncFences(deadline));
  // Collects the ranges that the broker has released first, because they may empty an arena.
  AB_RETURN_IF_ERROR(session->releases().Sync({}, deadline));
  codec::Release unused = session->releases().TakeUnused(steady_clock::now());
  if (unused.empty()) return Ok();
  return session->releases().Sync(std::move(unused), deadline);
}

milliseconds Connection::Idle() {
  const auto session = current();
  if (!session || session->lifeline().lost()) return kNothingToDo;
  session->lifeline().ReadArrived();
  session->PollDirectChannels();
  const auto now = steady_clock::now();
  const milliseconds idle = session->arena_idle();
  const bool wanted = session->lifeline().TakeMemoryWanted();
  if (session->written().count() > 0 && (wanted || now >= next_sync_)) {
    next_sync_ = now + idle;
    // If the broker does not answer, the next caller reports it.
    if (!session->releases().Sync({}, now + kSyncTimeout).ok()) return kIdleStepMax;
  }
  session->releases().Post(session->releases().TakeUnused(wanted ? now : now - idle));
  if (const auto next = session->fences().next_look()) return *next;
  if (session->written().count() == 0 && session->read().count() == 0) return kNothingToDo;
  return std::clamp(idle / 4, kIdleStepMin, kIdleStepMax);
}

}  // namespace arraybridge
