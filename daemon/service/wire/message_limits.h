// SPDX-License-Identifier: Apache-2.0
// The limits on the size and form of every request, checked before the Broker gets it. These are pure functions;
// INVALID_ARGUMENT names the field, its value and the limit.
#pragma once

#include <span>
#include <string_view>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "proto/boundary/result.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {

// The maximum size of an answer's message in bytes.
size_t AnswerBytesMax(const Limits& limits);

Status CheckHello(const wire::OpenSessionRequest& request);
Status CheckCapabilities(const wire::ClientCapabilities& capabilities);
Status CheckNamespace(const Limits& limits, std::string_view ns);
Status CheckPublish(const Limits& limits, const wire::PublishRequest& request);
// Checks the names or ids of Acquire and Withdraw.
Status CheckShares(const Limits& limits, std::span<const ShareKey> shares);
// Checks the note for traces: it is empty or a text.
Status CheckNote(const Limits& limits, std::string_view note);
Status CheckWatch(const Limits& limits, const wire::WatchRequest& request);
Status CheckOpenChannel(const Limits& limits, const wire::OpenChannelRequest& request);
// `shares`: those that the request names.
Status CheckWithdraw(const Limits& limits, const wire::WithdrawRequest& request, std::span<const ShareKey> shares);
// Checks a Publish into a channel, in addition to CheckPublish.
Status CheckSend(const wire::PublishRequest& request);
Status CheckRelease(const wire::ReleaseRequest& request);
Status CheckList(const Limits& limits, const v1::ListRequest& request);

}  // namespace arraybridge::daemon
