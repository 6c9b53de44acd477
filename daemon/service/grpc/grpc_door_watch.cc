// SPDX-License-Identifier: Apache-2.0
// At any time either a request for events is waiting or a write is running. The one that completes checks whether the
// call was cancelled meanwhile. So the stream is finished once, and never during a write.
#include "daemon/service/grpc/grpc_door_watch.h"

#include <functional>
#include <utility>

#include "daemon/service/grpc/status_grpc.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kForAsLongAsItTakes = 1;  // any timeout other than 0: a stream's requests have no deadline

Status CallEnded() { return {Code::kCancelled, "the call or its session has ended"}; }

}  // namespace

// Answers exactly once: with the given result or, if the verb drops it (cancelled, session ended), when it is
// destroyed.
class WatchStream::Promise {
 public:
  explicit Promise(std::shared_ptr<WatchStream> stream) : stream_(std::move(stream)) {}
  Promise(const Promise&) = delete;
  Promise& operator=(const Promise&) = delete;
  ~Promise() {
    if (stream_) stream_->Answered(CallEnded());
  }
  void Keep(Result<Answer> answer) { std::exchange(stream_, nullptr)->Answered(std::move(answer)); }

 private:
  std::shared_ptr<WatchStream> stream_;
};

WatchStream* WatchStream::Begin(Verbs& verbs, CallFacts call, const Caller& caller, wire::WatchRequest request) {
  request.watch = 0;
  request.close = false;
  const auto stream = std::make_shared<WatchStream>(verbs, call, caller, wire::Encode(request));
  stream->self_ = stream;
  stream->Ask();
  return stream.get();  // gRPC calls OnDone only after the handler has returned
}

void WatchStream::Ask() {
  const auto self = shared_from_this();
  uint64_t ask = 0;
  {
    const MutexLock lock(mutex_);
    ask = ++asks_;
  }
  const auto later = [&]() -> Reply {
    return [promise = std::make_shared<Promise>(self)](auto answer) { promise->Keep(std::move(answer)); };
  };
  auto served = verbs_.Serve(caller_, Verb::kWatch, request_, std::ref(later));
  if (!served.ok()) return Answered(served.status());
  if (served->now) return Answered(*std::move(served->now));
  bool cancelled = false;
  {
    const MutexLock lock(mutex_);
    if (answers_ >= ask) return;
    waiter_ = served->waiter;
    cancelled = cancelled_;
  }
  if (cancelled) verbs_.Cancel(served->waiter);
}

void WatchStream::Answered(Result<Answer> answer) {
  {
    const MutexLock lock(mutex_);
    ++answers_;
    waiter_ = {};
  }
  if (!answer.ok()) return End(answer.status());
  if (watch_ == 0) {
    if (const auto opened = wire::Decode<wire::WatchResponse>(answer->message); opened.ok()) watch_ = opened->watch;
    request_ = wire::Encode(wire::WatchRequest{.watch = watch_, .timeout_ms = kForAsLongAsItTakes});
  }
  if (is_cancelled()) return End(CallEnded());
  message_ = BufferOf(answer->message);
  StartWrite(&message_);
}

void WatchStream::OnWriteDone(bool ok) {
  if (!ok || is_cancelled()) return End(CallEnded());
  Ask();
}

void WatchStream::OnCancel() {
  WaiterId waiter{};
  {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    waiter = waiter_;
  }
  if (waiter != WaiterId{}) verbs_.Cancel(waiter);
}

void WatchStream::End(const Status& status) {
  flight_.End();
  verbs_.counts().traffic.Count(Door::kGrpc, static_cast<uint16_t>(call_.verb), status.code(),
                                Clock::now() - call_.begun);
  if (status.code() != Code::kCancelled) verbs_.counts().CountRefusal(caller_.session, call_.verb, status);
  if (watch_ != 0) verbs_.watches.CloseWatch(caller_, WatcherId{watch_});
  Finish(ToGrpc(status));
}

void WatchStream::OnDone() { const auto dies_last = std::move(self_); }

bool WatchStream::is_cancelled() {
  const MutexLock lock(mutex_);
  return cancelled_;
}

}  // namespace arraybridge::daemon
