// SPDX-License-Identifier: Apache-2.0
// At any time either a request for events is waiting or a write is running. Whichever completes checks whether the call
// was cancelled meanwhile. So the stream is finished once, and never during a write.
#include "daemon/service/grpc/grpc_door_watch.h"

#include <utility>

#include "daemon/service/grpc/status_grpc.h"

namespace arraybridge {
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
  void Keep(Result<Answer<v1::WatchResponse>> answer) { std::exchange(stream_, nullptr)->Answered(std::move(answer)); }

 private:
  std::shared_ptr<WatchStream> stream_;
};

WatchStream* WatchStream::Begin(Verbs& verbs, Asked asked, const Caller& caller, const v1::WatchRequest& request) {
  const auto stream = std::make_shared<WatchStream>(verbs, asked, caller, request);
  stream->request_.clear_watch();
  stream->request_.clear_close();
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
  const auto promise = std::make_shared<Promise>(self);
  const Reply<v1::WatchResponse> reply = [promise](auto answer) { promise->Keep(std::move(answer)); };
  const WaiterId waiter = verbs_.watches.Watch(caller_, request_, reply);
  bool cancelled = false;
  {
    const MutexLock lock(mutex_);
    if (answers_ >= ask) return;
    waiter_ = waiter;
    cancelled = cancelled_;
  }
  if (cancelled) verbs_.Cancel(waiter);
}

void WatchStream::Answered(Result<Answer<v1::WatchResponse>> answer) {
  {
    const MutexLock lock(mutex_);
    ++answers_;
    waiter_ = {};
  }
  if (!answer.ok()) return End(answer.status());
  if (is_cancelled()) return End(CallEnded());
  message_ = std::move(answer->message);
  StartWrite(&message_);
}

void WatchStream::OnWriteDone(bool ok) {
  if (!ok || is_cancelled()) return End(CallEnded());
  request_.set_watch(message_.watch());
  request_.set_timeout_ms(kForAsLongAsItTakes);
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
  verbs_.counts().traffic.Count(Door::kGrpc, static_cast<uint16_t>(asked_.verb), status.code(),
                                Clock::now() - asked_.begun);
  if (status.code() != Code::kCancelled) verbs_.counts().CountRefusal(caller_.session, asked_.verb, status);
  if (request_.watch() != 0) verbs_.watches.CloseWatch(caller_, WatcherId{request_.watch()});
  Finish(ToGrpc(status));
}

void WatchStream::OnDone() { const auto dies_last = std::move(self_); }

bool WatchStream::is_cancelled() {
  const MutexLock lock(mutex_);
  return cancelled_;
}

}  // namespace arraybridge
