// SPDX-License-Identifier: Apache-2.0
// Calls of the gRPC door that outlive their handler: a LateAnswer (Allocate, Acquire) and a SessionStream
// (OpenSession). gRPC owns both from the return of the handler until OnDone, in which they delete themselves.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/grpc/status_grpc.h"
#include "daemon/service/verbs/verbs.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// The verb of a call, and the time of its arrival.
struct Asked {
  Verb verb{};
  Clock::time_point begun = Clock::now();
};

// A call whose answer may come later, on any thread.
template <class Message>
class LateAnswer final : public grpc::ServerUnaryReactor {
 public:
  LateAnswer(Verbs& verbs, Asked asked, grpc::CallbackServerContext* context, Message* message)
      : verbs_(verbs),
        asked_(asked),
        context_(context),
        message_(message),
        flight_(verbs.counts().traffic.Begin(Door::kGrpc, static_cast<uint16_t>(asked.verb))) {}

  // Answers exactly once: when the reply is called or, if the verb drops it (cancelled, session ended), when it is
  // destroyed.
  Reply<Message> MakeReply(const Caller& caller) {
    return [promise = std::make_shared<Promise>(*this, caller)](Result<Answer<Message>> result) {
      promise->Keep(std::move(result));
    };
  }
  // REQUIRES: the handler has not returned; gRPC runs OnCancel and OnDone only after that.
  void WaitsAs(WaiterId waiter) { waiter_ = waiter; }

 private:
  class Promise {
   public:
    Promise(LateAnswer& call, const Caller& caller) : call_(&call), caller_(caller) {}
    Promise(const Promise&) = delete;
    Promise& operator=(const Promise&) = delete;
    ~Promise() {
      if (call_ == nullptr) return;
      call_->flight_.End();
      call_->Finish({grpc::StatusCode::CANCELLED, "the call or its session has ended"});
    }
    void Keep(Result<Answer<Message>> result) { std::exchange(call_, nullptr)->Deliver(caller_, std::move(result)); }

   private:
    LateAnswer* call_;
    const Caller caller_;
  };

  void Deliver(const Caller& caller, Result<Answer<Message>> result) {
    flight_.End();
    verbs_.counts().traffic.Count(Door::kGrpc, static_cast<uint16_t>(asked_.verb), result.status().code(),
                                  Clock::now() - asked_.begun);
    if (!result.ok()) {
      verbs_.counts().CountRefusal(caller.session, asked_.verb, result.status());
      return Finish(ToGrpc(result.status()));
    }
    if (context_->IsCancelled()) {
      GiveBack(caller, result->message);  // the caller will not receive what was granted
      return Finish(grpc::Status::CANCELLED);
    }
    *message_ = std::move(result->message);
    Finish(grpc::Status::OK);
  }
  template <class Granted>
  void GiveBack(const Caller& caller, const Granted& granted) {
    verbs_.TakeBack(caller, granted);
  }
  // The share remains, as it does when its answer is lost in transit.
  void GiveBack(const Caller&, const v1::PublishResponse&) {}

  void OnCancel() override {
    if (waiter_ != WaiterId{}) verbs_.Cancel(waiter_);
  }
  void OnDone() override { delete this; }

  Verbs& verbs_;
  const Asked asked_;
  grpc::CallbackServerContext* const context_;
  Message* const message_;
  Traffic::InFlight flight_;
  WaiterId waiter_{};
};

class SessionStream;

// All open SessionStreams, so that a drain can end them. Thread-safe.
class SessionStreams {
 public:
  void Add(const std::shared_ptr<SessionStream>& stream);
  void Forget(SessionStream* stream);
  // Streams that are added later are drained at once.
  void Drain();
  // Cancels the stream of this session. False: the session has none.
  bool Cancel(SessionId session);

 private:
  Mutex mutex_;
  bool draining_ AB_GUARDED_BY(mutex_) = false;
  std::unordered_map<SessionStream*, std::shared_ptr<SessionStream>> streams_ AB_GUARDED_BY(mutex_);
};

// A session that ends when its stream ends. It is ended once, whichever side ends the stream.
class SessionStream final : public grpc::ServerWriteReactor<v1::SessionEvent> {
 public:
  SessionStream(Verbs& verbs, SessionStreams& streams, grpc::CallbackServerContext* context,
                v1::OpenSessionResponse opened, bool is_continued)
      : verbs_(verbs),
        streams_(streams),
        context_(context),
        session_(SessionId{opened.session()}),
        is_continued_(is_continued) {
    *event_.mutable_opened() = std::move(opened);
  }

  void SayOpened() { StartWrite(&event_); }
  void Drain() { Step(&SessionStream::draining_); }
  SessionId session() const { return session_; }
  // REQUIRES: gRPC is not done with it.
  void Cancel() {
    {
      MutexLock lock(mutex_);
      cut_ = true;
    }
    context_->TryCancel();
  }

 private:
  void OnCancel() override { Step(&SessionStream::over_); }
  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      told_ = told_ || ok;
    }
    // A write fails because the call is over. OnCancel has run or will run; it may have waited for this write.
    Step(ok ? nullptr : &SessionStream::over_);
  }
  void OnDone() override { streams_.Forget(this); }

  // Records an event, then finishes the stream if all conditions hold: once, and never during a write.
  void Step(bool SessionStream::*happened);

  Verbs& verbs_;
  SessionStreams& streams_;
  grpc::CallbackServerContext* const context_;
  const SessionId session_;
  const bool is_continued_;
  v1::SessionEvent event_;  // `opened` first; `draining` after it has been written
  Mutex mutex_;
  bool writing_ AB_GUARDED_BY(mutex_) = true;
  bool told_ AB_GUARDED_BY(mutex_) = false;  // `opened` has been written
  bool over_ AB_GUARDED_BY(mutex_) = false;
  bool cut_ AB_GUARDED_BY(mutex_) = false;  // ended by the daemon, not by its client
  bool draining_ AB_GUARDED_BY(mutex_) = false;
  bool finished_ AB_GUARDED_BY(mutex_) = false;
};

// An OpenSession or a Watch that was refused.
template <class Message>
class RefusedStream final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit RefusedStream(const grpc::Status& status) { this->Finish(status); }

 private:
  void OnDone() override { delete this; }
};

}  // namespace arraybridge
