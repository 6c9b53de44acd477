// A channel has two queues of waiting requests, its senders' and its receivers', each first come first served. Whatever
// changes the channel serves both, until no request is left whose turn it is.
#pragma once

#include <cstdint>

#include "daemon/broker/channels/channel.h"
#include "daemon/broker/ids.h"
#include "daemon/service/waiting_line.h"

namespace arraybridge {

// The number of the queue in the waiting line.
inline uint64_t QueueOf(ChannelId channel, ChannelRole role) {
  return 2 * Number(channel) + (role == ChannelRole::kReceiver ? 1 : 0);
}

// Something was sent, received or closed there: the requests whose turn it is now are answered. A share that is
// received makes room for a sender, and a share that is sent is there for a receiver: the two queues are served in
// turn, and not one out of the other, which would recurse as deep as there are waiters.
inline void ServeChannel(WaitingLine& line, ChannelId channel) {
  for (bool more = true; more && line.waits_in_queues();) {
    more = line.ServeQueue(QueueOf(channel, ChannelRole::kReceiver));
    more |= line.ServeQueue(QueueOf(channel, ChannelRole::kSender));
  }
}

}  // namespace arraybridge
