// SPDX-License-Identifier: Apache-2.0
// A DirectChannelRecord is what the broker knows of the direct channel of one channel: its two ends, and its state. It
// outlives the channel while the sender waits for ranges that the receiver holds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/broker/ledger/ids.h"
#include "daemon/memory/shared_pages/direct_channel.h"

namespace arraybridge::daemon {

class KeptRanges;

struct DirectChannelRecord {
  ChannelId channel{};
  std::string ns;
  SessionId sender{};
  ChannelEndId sending{};  // its end of the channel
  SessionId receiver{};
  ChannelEndId receiving{};
  uint32_t sender_uid = 0;
  uint32_t receiver_uid = 0;
  std::shared_ptr<DirectChannel> pages;  // never null
  bool open = false;                     // both ends use it
  bool ended = false;                    // only its sender may still wait for ranges
  std::shared_ptr<KeptRanges> kept;      // null: it was removed
  uint32_t record = 0;                   // in the journal
};

}  // namespace arraybridge::daemon
