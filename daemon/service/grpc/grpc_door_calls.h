// SPDX-License-Identifier: Apache-2.0
// Calls of the gRPC door that outlive their handler: a LateAnswer (to a request that waits) and a SessionStream
// (OpenSession). gRPC owns both from the return of the handler until OnDone, in which they delete themselves. Messages
// are the bytes that verbs read and write.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/service/grpc/status_grpc.h"
#include "daemon/service/verbs/verbs.h"
#include "proto/boundary/mutex.h"

namespace arraybridge::daemon {

// The verb of a call, and the time of its arrival.
struct CallFacts {
  Verb verb{};
  Clock::time_point begun = Clock::now();
};

inline grpc::ByteBuffer BufferOf(std::string_view bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  return {&slice, 1};
}

// A received message, in one piece.
class MessageBytes {
 public:
  // A message without bytes has no slices.
  explicit MessageBytes(const grpc::ByteBuffer& buffer) {
    if (!buffer.TrySingleSlice(&slice_).ok() && !buffer.DumpToSingleSlice(&slice_).ok()) slice_ = grpc::Slice();
  }
  std::string_view view() const { return {reinterpret_cast<const char*>(slice_.begin()), slice_.size()}; }

 private:
  grpc::Slice slice_;
};

// A call whose answer comes later, on any thread.
class LateAnswer final : public grpc::ServerUnaryReactor {
 public:
  LateAnswer(Verbs& verbs, CallFacts call, grpc::CallbackServerContext* context, grpc::ByteBuffer* message,
             Traffic::InFlight flight)
      : verbs_(verbs), call_(call), context_(context), message_(message), flight_(std::move(flight)) {}

  // Answers exactly once: when the reply is called or, if the verb drops it (cancelled, session ended), when it is
  // destroyed.
  Reply MakeReply(const Caller& caller) {
    return [promise = std::make_shared<Promise>(*this, caller)](Result<Answer> result) {
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
    void Keep(Result<Answer> result) { std::exchange(call_, nullptr)->Deliver(caller_, std::move(result)); }

   private:
    LateAnswer* call_;
    const Caller caller_;
  };

  void Deliver(const Caller& caller, Result<Answer> result) {
    flight_.End();
    verbs_.counts().traffic.Count(Door::kGrpc, static_cast<uint16_t>(call_.verb), result.status().code(),
                                  Clock::now() - call_.begun);
    if (!result.ok()) {
      verbs_.counts().CountRefusal(caller.session, call_.verb, result.status());
      return Finish(ToGrpc(result.status()));
    }
    if (context_->IsCancelled()) {
      verbs_.TakeBack(caller, call_.verb, result->message);  // the caller will not receive what was granted
      return Finish(grpc::Status::CANCELLED);
    }
    *message_ = BufferOf(result->message);
    Finish(grpc::Status::OK);
  }

  void OnCancel() override {
    if (waiter_ != WaiterId{}) verbs_.Cancel(waiter_);
  }
  void OnDone() override { delete this; }

  Verbs& verbs_;
  const CallFacts call_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const message_;
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
class SessionStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  SessionStream(Verbs& verbs, SessionStreams& streams, grpc::CallbackServerContext* context, SessionId session,
                std::string_view opened, bool is_continued)
      : verbs_(verbs),
        streams_(streams),
        context_(context),
        session_(session),
        is_continued_(is_continued),
        event_(BufferOf(opened)) {}

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
      opened_written_ = opened_written_ || ok;
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
  grpc::ByteBuffer event_;  // `opened` first; `draining` after it has been written
  Mutex mutex_;
  bool writing_ AB_GUARDED_BY(mutex_) = true;
  bool opened_written_ AB_GUARDED_BY(mutex_) = false;  // `opened` has been written
  bool over_ AB_GUARDED_BY(mutex_) = false;
  bool cut_ AB_GUARDED_BY(mutex_) = false;  // ended by the daemon, not by its client
  bool draining_ AB_GUARDED_BY(mutex_) = false;
  bool finished_ AB_GUARDED_BY(mutex_) = false;
};

// An OpenSession or a Watch that was refused.
class RefusedStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }

 private:
  void OnDone() override { delete this; }
};

}  // namespace arraybridge::daemon
