// A DirectChannelRecord is the direct channel of one channel: between which two sessions it lies, and how far it has come. It outlives
// the channel while its sender waits for what its receiver has of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/broker/ids.h"
#include "daemon/memory/direct_channel.h"

namespace arraybridge {

struct DirectChannelRecord {
  ChannelId channel{};
  std::string ns;
  SessionId sender{};
  ChannelEndId sending{};  // its end of the channel
  SessionId receiver{};
  ChannelEndId receiving{};
  uint32_t sender_uid = 0;
  uint32_t receiver_uid = 0;
  std::shared_ptr<DirectChannel> direct;  // never null
  bool open = false;           // both ends use it
  bool ended = false;          // its sender alone may still wait for something
};

}  // namespace arraybridge
