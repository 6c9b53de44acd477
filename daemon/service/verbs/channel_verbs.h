// SPDX-License-Identifier: Apache-2.0
// ChannelVerbs: OpenChannel, CloseChannel, Publish into a channel and Receive; also ends direct channels.
#pragma once

#include <memory>
#include <string_view>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/reclaim/reclaimer.h"
#include "daemon/service/reclaim/waiting_line.h"
#include "daemon/service/telemetry/service_counts.h"
#include "daemon/service/verbs/admission.h"
#include "daemon/service/verbs/caller.h"
#include "daemon/service/verbs/handover.h"
#include "proto/boundary/result.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {

// Thread-safe.
class ChannelVerbs {
 public:
  // All arguments outlive it.
  ChannelVerbs(const Config& config, Broker& broker, const Admission& admission, WaitingLine& line,
               Reclaimer& reclaimer, Handover& handover, ServiceCounts& counts)
      : config_(config),
        broker_(broker),
        admission_(admission),
        line_(line),
        reclaimer_(reclaimer),
        handover_(handover),
        counts_(counts) {}

  Result<Answer> OpenChannel(const Caller& caller, const wire::OpenChannelRequest& request);
  Result<Answer> CloseChannel(const Caller& caller, const wire::CloseChannelRequest& request);
  // A Withdraw that names a channel.
  Result<uint32_t> Drain(const Caller& caller, const wire::WithdrawRequest& request);
  // A Publish that names a channel. `bytes`: those of the request, in both.
  Served Send(const Caller& caller, const wire::PublishRequest& request, std::string_view bytes, const Later& later);
  Served Receive(const Caller& caller, const wire::ReceiveRequest& request, std::string_view bytes, const Later& later);

  // Direct channels (verbs_direct.cc). Null: there is none. When it returns, the direct channel has ended and its
  // shares are queued.
  void EndDirectChannel(const std::shared_ptr<const DirectChannelRecord>& of);
  Result<Answer> DirectChannelMapped(const Caller& caller, const wire::MappedRequest& request);

 private:
  // Refuses while other requests wait in the queue, because it is not this caller's turn.
  Result<Answer> TryReceive(const Caller& caller, const wire::ReceiveRequest& request);
  Result<Answer> ReceiveNow(const Caller& caller, const wire::ReceiveRequest& request);
  // True if the refusal is CHANNEL_IS_DIRECT: the direct channel has to be revoked first, or polled.
  static bool IsDirectRefusal(const Status& refusal);
  bool PublishEntry(const DirectChannelRecord& of, const direct_channel::Entry& entry, uint64_t number);
  void LogSlow(SessionId session, ChannelEndId end) const;
  Result<PublishedShare> PublishInto(const Caller& caller, const PublishCall& call);

  const Config& config_;
  Broker& broker_;
  const Admission& admission_;
  WaitingLine& line_;
  Reclaimer& reclaimer_;
  Handover& handover_;
  ServiceCounts& counts_;
};

}  // namespace arraybridge::daemon
