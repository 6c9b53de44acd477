// SPDX-License-Identifier: Apache-2.0
// A channel has two queues of waiting requests: its senders' and its receivers'. Each is served in the order of
// arrival. In a broadcast each receiver has a queue of its own, because what one has received others still wait for. A
// receiver that comes before the mode is known waits in its own queue, too. Every change of the channel serves all
// queues until no request can be answered.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/broker/ledger/ids.h"
#include "daemon/service/reclaim/waiting_line.h"

namespace arraybridge::daemon {

// The numbers of the queues in the waiting line.
inline uint64_t QueueOf(ChannelId channel, ChannelRole role) {
  return 2 * Number(channel) + (role == ChannelRole::kReceiver ? 1 : 0);
}
inline uint64_t QueueOf(ChannelEndId receiver) { return (uint64_t{1} << 62) | Number(receiver); }
inline uint64_t QueueOf(const ChannelPlace& place, ChannelEndId end, ChannelRole role) {
  return place.own_queue ? QueueOf(end) : QueueOf(place.channel, role);
}

// Call it after a share was sent or received, or an end closed: answers the requests that can be answered now. A
// received share makes room for a sender, and a sent share is ready for a receiver. The queues are served alternately
// in a loop, because recursion would be as deep as there are waiters. Requests in queues of their own are the older
// ones.
inline void ServeChannel(WaitingLine& line, const Broker& broker, ChannelId channel) {
  if (!line.waits_in_queues()) return;
  const std::vector<ChannelEndId> receivers = broker.ReceiversOf(channel);
  for (bool more = true; more && line.waits_in_queues();) {
    more = false;
    for (const ChannelEndId receiver : receivers) more |= line.ServeQueue(QueueOf(receiver));
    more |= line.ServeQueue(QueueOf(channel, ChannelRole::kReceiver));
    more |= line.ServeQueue(QueueOf(channel, ChannelRole::kSender));
  }
}

}  // namespace arraybridge::daemon
