// SPDX-License-Identifier: Apache-2.0
// ShareVerbs lease shares, release leases and withdraw names: Acquire, Release, Withdraw.
#pragma once

#include <cstdint>
#include <string>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/reclaim/reclaimer.h"
#include "daemon/service/reclaim/waiting_line.h"
#include "daemon/service/verbs/admission.h"
#include "daemon/service/verbs/caller.h"
#include "daemon/service/verbs/channel_verbs.h"
#include "daemon/service/verbs/handover.h"
#include "daemon/service/verbs/publish_verbs.h"
#include "daemon/service/wire/acquire_wire.h"
#include "daemon/service/wire/handle_offer.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe.
class ShareVerbs {
 public:
  // All arguments outlive it.
  ShareVerbs(const Config& config, Broker& broker, const RunsAt& here, const Admission& admission, WaitingLine& line,
             Reclaimer& reclaimer, Handover& handover, PublishVerbs& publishes, ChannelVerbs& channels)
      : config_(config),
        broker_(broker),
        here_(here),
        admission_(admission),
        line_(line),
        reclaimer_(reclaimer),
        handover_(handover),
        publishes_(publishes),
        channels_(channels) {}

  WaiterId Acquire(const Caller& caller, const AcquireAsked& asked, const Reply<v1::AcquireResponse>& reply);
  // The answer of Acquire without waiting, as the bytes of a v1.AcquireResponse. The caller may wait if MayCome is true
  // for the refusal.
  Result<PassedFd> TryAcquire(const Caller& caller, const AcquireAsked& asked, std::string* response);
  // Whether the share may come. `timeout_ms`: how long the request would wait for a name. A request always waits for
  // bytes that are being made.
  static bool MayCome(const Status& refusal, uint64_t timeout_ms);
  Result<Answer<v1::ReleaseResponse>> Release(const Caller& caller, const v1::ReleaseRequest& request);
  Result<Answer<v1::WithdrawResponse>> Withdraw(const Caller& caller, const v1::WithdrawRequest& request);

 private:
  // TryAcquire without serving the queues, which would call it again: a request that waits for a name is retried when
  // the name is published.
  Result<PassedFd> AcquireNow(const Caller& caller, const AcquireAsked& asked, std::string* response);
  Result<Answer<v1::AcquireResponse>> AcquireMessage(const Caller& caller, const AcquireAsked& asked);
  WaiterId AcquireLater(const Caller& caller, const AcquireAsked& asked, Status missing,
                        const Reply<v1::AcquireResponse>& reply);
  Status EndFences(const Caller& caller, const v1::ReleaseRequest& request, v1::ReleaseResponse* response);
  Status OfferAnew(const Caller& caller, const v1::ClientCapabilities& capabilities);

  const Config& config_;
  Broker& broker_;
  const RunsAt& here_;
  const Admission& admission_;
  WaitingLine& line_;
  Reclaimer& reclaimer_;
  Handover& handover_;
  PublishVerbs& publishes_;
  ChannelVerbs& channels_;
};

}  // namespace arraybridge
