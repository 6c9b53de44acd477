// A DirectChannelRecord is what the broker knows of the direct channel of one channel: its two ends, and its state. It
// outlives the channel while the sender waits for ranges that the receiver holds.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "daemon/broker/ids.h"
#include "daemon/memory/shared_pages/direct_channel.h"

namespace arraybridge {

struct Share;

// The ranges of a direct channel that shares use although the receiver may have returned them (shares/forwards.h). The
// record and the shares own it.
struct KeptRanges {
  std::shared_ptr<DirectChannel> pages;         // null: its sender does not read the control block any more
  std::set<std::pair<uint64_t, Share*>> roots;  // by return bit

  // One of the roots with this bit; null: there is none.
  Share* RootOf(uint64_t bit) const {
    const auto first = roots.lower_bound({bit, nullptr});
    return first != roots.end() && first->first == bit ? first->second : nullptr;
  }
};

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
  std::shared_ptr<KeptRanges> kept;      // never null
  uint32_t record = 0;                   // in the journal
};

}  // namespace arraybridge
