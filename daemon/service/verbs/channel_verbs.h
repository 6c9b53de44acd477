// SPDX-License-Identifier: Apache-2.0
// ChannelVerbs: OpenChannel, CloseChannel, Publish into a channel and Receive; also ends direct channels.
#pragma once

#include <memory>
#include <string_view>

#include "daemon/service/verbs/caller.h"
#include "daemon/service/verbs/verb_parts.h"
#include "proto/boundary/result.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {

// Thread-safe.
class ChannelVerbs : VerbParts {
 public:
  // All arguments outlive it.
  explicit ChannelVerbs(const VerbParts& parts) : VerbParts(parts) {}

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
};

}  // namespace arraybridge::daemon
