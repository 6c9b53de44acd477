// SPDX-License-Identifier: Apache-2.0
// ChannelVerbs: OpenChannel, CloseChannel, Publish into a channel and Receive; also ends direct channels.
#pragma once

#include <memory>
#include <string>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/reclaim/reclaimer.h"
#include "daemon/service/reclaim/waiting_line.h"
#include "daemon/service/telemetry/service_counts.h"
#include "daemon/service/verbs/admission.h"
#include "daemon/service/verbs/caller.h"
#include "daemon/service/verbs/handover.h"
#include "daemon/service/wire/publish_wire.h"
#include "proto/boundary/result.h"

namespace arraybridge {

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

  Result<Answer<v1::OpenChannelResponse>> OpenChannel(const Caller& caller, const v1::OpenChannelRequest& request);
  Result<Answer<v1::CloseChannelResponse>> CloseChannel(const Caller& caller, const v1::CloseChannelRequest& request);
  // A Withdraw that names a channel.
  Result<uint32_t> Drain(const Caller& caller, const v1::WithdrawRequest& request);
  // A Publish that names a channel.
  WaiterId Send(const Caller& caller, const PublishAsked& asked, const Reply<v1::PublishResponse>& reply);
  WaiterId Receive(const Caller& caller, const v1::ReceiveRequest& request, const Reply<v1::AcquireResponse>& reply);
  // Answers as TryAcquire does. Refuses while other requests wait in the queue, because it is not this caller's turn.
  Result<PassedFd> TryReceive(const Caller& caller, const v1::ReceiveRequest& request, std::string* response);
  static bool MayArrive(const Status& refusal);
  WaiterId ReceiveLater(const Caller& caller, const v1::ReceiveRequest& request,
                        const Reply<v1::AcquireResponse>& reply);

  // Direct channels (verbs_direct.cc). Null: there is none. When it returns, the direct channel has ended and its
  // shares are queued.
  void EndDirectChannel(const std::shared_ptr<const DirectChannelRecord>& of);
  Result<Answer<v1::MappedResponse>> DirectChannelMapped(const Caller& caller, const v1::MappedRequest& request);

 private:
  Result<Answer<v1::AcquireResponse>> ReceiveMessage(const Caller& caller, const v1::ReceiveRequest& request);
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

}  // namespace arraybridge
