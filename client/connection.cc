#include "client/connection.h"

#include <algorithm>

#include "client/arena.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kIdleStepMin{10};
constexpr milliseconds kIdleStepMax{1000};
constexpr milliseconds kNothingToDo{-1};
constexpr milliseconds kSyncTimeout{2000};
// So often a thread that waits for another's connect looks whether it is interrupted.
constexpr milliseconds kLook{100};

// Not UNAVAILABLE: who is told that may ask again, and this was another's.
Status PublishLost() {
  return Status(Code::kAborted, "the connection to the broker ended before it had taken that", "PUBLISH_LOST");
}

Status OutcomeUnknown() {
  return Unavailable("the connection on which this was asked for ended before the broker answered, or more than ",
                     Outcomes::kRememberedMax, " other requests were given up since: look whether the name is there")
      .Because("OUTCOME_UNKNOWN");
}

}  // namespace

std::shared_ptr<Connection> Connection::Make(const Broker::Options& options) {
  std::shared_ptr<Connection> connection(new Connection(options));
  connection->reaper_->SetIdle([weak = std::weak_ptr(connection)] {
    const auto self = weak.lock();
    return self ? self->Idle() : kNothingToDo;
  });
  return connection;
}

Connection::Connection(const Broker::Options& options)
    : options_(options),
      mappers_(MapperTable::OfThisProcess(options.cuda_driver)),
      reaper_(Reaper::Make(BurySessionRemains)) {}

// Arrays that live on keep their session, and the reaper lives until they are gone.
Connection::~Connection() {
  // Once nobody looks after them any more, shares whose bytes are not there yet would be lost with the connection.
  if (const auto session = current(); session && !session->lifeline().lost()) {
    static_cast<void>(session->SyncFences(steady_clock::now() + options_.timeout));
    session->fences().GiveUp();
  }
  reaper_->Retire();
}

Result<std::shared_ptr<Session>> Connection::Connected(Deadline deadline) {
  std::shared_ptr<Session> dead;  // dies outside the lock
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
  if (dead) dead->unwaited().GiveUp(*dead, PublishLost());
  auto opened = Session::Open(options_, reaper_, mappers_, late_errors_, outcomes_, deadline);
  MutexLock lock(mutex_);
  connecting_ = false;
  if (opened.ok()) session_ = *opened;
  connected_.NotifyAll();
  return opened;
}

std::shared_ptr<Session> Connection::current() const {
  MutexLock lock(mutex_);
  return session_;
}

Result<Answer> Connection::Call(Verb verb, std::string_view payload, Deadline deadline, std::string* broker_id) {
  for (bool again = true;; again = false) {
    auto session = Connected(deadline);
    if (!session.ok()) return session.status();
    auto answer = (*session)->Call(verb, payload, deadline);
    if (broker_id != nullptr) *broker_id = (*session)->server().info.broker_id;
    if (answer.ok() || !again || answer.status().reason() != Lifeline::kNotSent) return answer;
  }
}

Status Connection::Confirm(Deadline deadline) {
  const auto session = current();
  if (session && session->unwaited().unconfirmed(*session) > 0 && !session->lifeline().lost()) {
    // This request comes after them in the queue.
    Status synced = session->Sync({}, deadline);
    if (!synced.ok() && !session->lifeline().lost()) return synced;
  }
  if (session) session->unwaited().Confirm(*session);
  if (session && session->lifeline().lost()) session->unwaited().GiveUp(*session, PublishLost());
  return TakeLateErrors();
}

Result<Outcome> Connection::OutcomeOf(const Status& failed, Deadline deadline) {
  const auto key = Outcomes::Key::Of(failed);
  if (!key) return Outcome{.status = failed, .share = {}};
  if (auto known = outcomes_->Find(*key)) return *std::move(known);
  const auto session = current();
  if (session && session->lifeline().nonce() == key->nonce) {
    const Status answered = session->lifeline().AwaitLate(key->request, deadline);
    if (auto known = outcomes_->Find(*key)) return *std::move(known);
    if (!answered.ok()) return failed;
  }
  return OutcomeUnknown();
}

Status Connection::Flush(Deadline deadline) {
  if (!reaper_->Collect(deadline)) return DeadlineExceeded("a GPU has not done with what was given back in time");
  const auto session = current();
  if (!session || session->lifeline().lost()) return Ok();
  AB_RETURN_IF_ERROR(session->SyncFences(deadline));
  // First learn what the broker let go of: it may empty an arena.
  AB_RETURN_IF_ERROR(session->Sync({}, deadline));
  codec::Release unused = session->TakeUnused(steady_clock::now());
  if (unused.empty()) return Ok();
  return session->Sync(std::move(unused), deadline);
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
    // A broker that does not answer is the next caller's to complain about.
    if (!session->Sync({}, now + kSyncTimeout).ok()) return kIdleStepMax;
  }
  session->Post(session->TakeUnused(wanted ? now : now - idle));
  if (const auto next = session->fences().next_look()) return *next;
  if (session->written().count() == 0 && session->read().count() == 0) return kNothingToDo;
  return std::clamp(idle / 4, kIdleStepMin, kIdleStepMax);
}

}  // namespace arraybridge
