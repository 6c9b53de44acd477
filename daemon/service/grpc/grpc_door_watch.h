// SPDX-License-Identifier: Apache-2.0
// A WatchStream is a watch at the gRPC door. Like a lifeline, it requests the next events each time the client has
// taken the previous ones. It keeps itself alive until gRPC is done with it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <utility>

#include "daemon/service/grpc/grpc_door_calls.h"
#include "daemon/service/verbs/verbs.h"
#include "proto/boundary/mutex.h"

namespace arraybridge::daemon {

class WatchStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                          public std::enable_shared_from_this<WatchStream> {
 public:
  // Starts the stream at once; the first message reports that the watch is open. gRPC owns the stream from here on.
  static WatchStream* Begin(Verbs& verbs, CallFacts call, const Caller& caller, wire::WatchRequest request);
  WatchStream(Verbs& verbs, CallFacts call, const Caller& caller, std::string request)
      : verbs_(verbs),
        call_(call),
        flight_(verbs.counts().traffic.Begin(Door::kGrpc, static_cast<uint16_t>(call.verb))),
        caller_(caller),
        request_(std::move(request)) {}

 private:
  class Promise;

  void Ask();
  void Answered(Result<Answer> answer) AB_EXCLUDES(mutex_);
  // Called once; no request and no write follows.
  void End(const Status& status);
  void OnCancel() override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;
  bool is_cancelled() AB_EXCLUDES(mutex_);

  Verbs& verbs_;
  const CallFacts call_;
  Traffic::InFlight flight_;  // counts the call while the stream exists
  const Caller caller_;
  std::string request_;       // for the next events
  uint64_t watch_ = 0;        // its number; 0: it is not open yet
  grpc::ByteBuffer message_;  // that is being written
  std::shared_ptr<WatchStream> self_;
  Mutex mutex_;
  uint64_t asks_ AB_GUARDED_BY(mutex_) = 0;
  uint64_t answers_ AB_GUARDED_BY(mutex_) = 0;
  WaiterId waiter_ AB_GUARDED_BY(mutex_){};  // of the request that has no answer yet
  bool cancelled_ AB_GUARDED_BY(mutex_) = false;
};

}  // namespace arraybridge::daemon
