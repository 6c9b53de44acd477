// A channel has two queues of waiting requests: its senders' and its receivers'. Each is served in the order of
// arrival. Every change of the channel serves both queues until no request can be answered.
#pragma once

#include <cstdint>

#include "daemon/broker/channels/channel.h"
#include "daemon/broker/ids.h"
#include "daemon/service/reclaim/waiting_line.h"

namespace arraybridge {

// The number of the queue in the waiting line.
inline uint64_t QueueOf(ChannelId channel, ChannelRole role) {
  return 2 * Number(channel) + (role == ChannelRole::kReceiver ? 1 : 0);
}

// Call it after a share was sent or received, or an end closed: answers the requests that can be answered now. A
// received share makes room for a sender, and a sent share is ready for a receiver. The queues are served alternately
// in a loop, because recursion would be as deep as there are waiters.
inline void ServeChannel(WaitingLine& line, ChannelId channel) {
  for (bool more = true; more && line.waits_in_queues();) {
    more = line.ServeQueue(QueueOf(channel, ChannelRole::kReceiver));
    more |= line.ServeQueue(QueueOf(channel, ChannelRole::kSender));
  }
}

}  // namespace arraybridge
