// SPDX-License-Identifier: Apache-2.0
// Verbs with a channel that has a direct channel from one session to another.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tests/unit/service/channel_fixture.h"
#include "tests/unit/service/direct_ends.h"

namespace arraybridge::daemon {

class VerbsDirectTest : public VerbsChannelTest {
 protected:
  static constexpr uint64_t kCapacity = 4;
  static constexpr auto kSender = v1::OpenChannelRequest::SENDER;
  static constexpr auto kReceiver = v1::OpenChannelRequest::RECEIVER;

  void Build() {
    sender_ = Open();
    receiver_ = Open();
    arena_ = Arena(sender_, kMiB);
    sending_ = End(sender_, kSender, kCapacity);
    receiving_ = End(receiver_, kReceiver);
    ends_.emplace(verbs(), sender_, sending_, receiver_, receiving_, kCapacity);
  }
  // Ends it, and tells why a part of it is refused.
  Status RefusedFiles(const Caller& caller, uint64_t end) {
    v1::BrowseRequest request;
    request.set_channel(end);
    request.set_part(v1::BrowseRequest::DIRECT_CHANNEL);
    return door().Browse(caller, request).status();
  }
  std::string ReasonOf(Received received) { return received->Get().status().reason(); }
  Received Leave() {
    v1::ReceiveRequest request;
    request.set_channel(receiving_);
    request.set_revoke(true);
    return door().Receive(receiver_, request);
  }
  void CloseBoth() {
    Close(sender_, sending_);
    Close(receiver_, receiving_);
  }

  Caller sender_;
  Caller receiver_;
  v1::Handle arena_;
  uint64_t sending_ = 0;
  uint64_t receiving_ = 0;
  std::optional<DirectEnds> ends_;
};

}  // namespace arraybridge::daemon
