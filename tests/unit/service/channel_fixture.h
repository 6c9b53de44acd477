// SPDX-License-Identifier: Apache-2.0
// Verbs with a channel named "frames", over a real Broker.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/service/verbs_fixture.h"

namespace arraybridge::daemon {

class VerbsChannelTest : public VerbsTest {
 protected:
  using Sent = std::unique_ptr<Awaited<v1::PublishResponse>>;
  using Received = std::unique_ptr<Awaited<v1::AcquireResponse>>;

  uint64_t End(const Caller& caller, v1::OpenChannelRequest::Role role, uint64_t capacity = 0) {
    v1::OpenChannelRequest request;
    request.set_name("frames");
    request.set_role(role);
    request.set_capacity(capacity);
    const auto opened = door().OpenChannel(caller, request);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    if (!opened.ok()) return 0;
    seen_[opened->message.channel()] = opened->message.seen_notice();
    return opened->message.channel();
  }
  Sent Send(const Caller& caller, uint64_t end, const v1::Handle& arena, uint64_t page, uint64_t timeout_ms = 0) {
    v1::PublishRequest request = PublishOf(arena, "", false, page * 4096);
    request.set_channel(end);
    request.set_timeout_ms(timeout_ms);
    request.set_seen_notice(seen_[end]);
    return door().Send(caller, request);
  }
  Received Receive(const Caller& caller, uint64_t end, uint64_t timeout_ms = 0) {
    v1::ReceiveRequest request;
    request.set_channel(end);
    request.set_timeout_ms(timeout_ms);
    request.set_seen_notice(seen_[end]);
    return door().Receive(caller, request);
  }
  template <class Message>
  static bool IsAnswered(const std::unique_ptr<Awaited<Message>>& awaited) {
    return awaited->future.wait_for(std::chrono::milliseconds(0)) == std::future_status::ready;
  }
  static uint64_t PageOf(Received received) {
    const auto answer = received->Get();
    EXPECT_TRUE(answer.ok()) << answer.status().ToString();
    return answer.ok() ? answer->message.shares(0).share().handle().offset() / 4096 : 99;
  }
  void Close(const Caller& caller, uint64_t end) {
    v1::CloseChannelRequest request;
    request.set_channel(end);
    EXPECT_TRUE(door().CloseChannel(caller, request).ok());
  }

  std::map<uint64_t, uint64_t> seen_;  // by end: the last notice that is not for it
};

}  // namespace arraybridge::daemon
