// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/tiers/tiers.h>

#include "client/lifeline/lifeline.h"
#include "client/session/connection.h"
#include "proto/wire/messages.h"

namespace arraybridge {

Result<TierAnswer> TierCalls::Ask(Broker& broker, TierAction action, const ShareRef& share,
                                  std::chrono::milliseconds timeout, TierRank rank) {
  wire::TierRequest request{.namespace_ = broker.options().ns,
                            .name = share.name,
                            .action = static_cast<wire::TierRequest::Action>(action),
                            .generation = share.generation,
                            .pin = static_cast<wire::TierRequest::Pin>(rank.pin),
                            .priority = rank.priority};
  TierAnswer answer;
  do {
    AB_ASSIGN_OR_RETURN(const auto answered,
                        broker.connection()->Call(Verb::kTier, wire::Encode(request), DeadlineAfter(timeout)));
    AB_ASSIGN_OR_RETURN(const auto message, codec::Read<wire::TierResponse>(answered.first.payload));
    answer.disk_bytes = message.disk_bytes;
    answer.disk_bytes_max = message.disk_bytes_max;
    answer.off = message.off;
    for (const wire::TieredShare& each : message.shares) {
      answer.shares.push_back(
          {std::string(each.name), each.generation, each.bytes, each.in_memory, each.durable, each.lost});
    }
    if (message.next != 0 && message.next <= request.after) return Internal("the broker repeats a part of its list");
    request.after = message.next;
  } while (request.after != 0);
  return answer;
}

}  // namespace arraybridge
