// SPDX-License-Identifier: Apache-2.0
// Select over channels and services of a real daemon.
#include <poll.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <arraybridge/select/select.h>
#include <gtest/gtest.h>

#include "tests/integration/processes.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{120000};  // no test waits so long

class SelectTest : public DaemonTest {
 protected:
  Channel Open(const std::string& name, Channel::Role role) { return *broker_.OpenChannel(name, role); }
  void Send(Channel& channel, int64_t number) {
    const View view = *Describe(&number, {0, 64, 1}, {1}, {}, {}, true, nullptr);
    const auto sent = broker_.Send(channel, {&view, 1}, {.timeout = kLong});
    ASSERT_TRUE(sent.ok()) << sent.status().ToString();
  }
  static int64_t NumberOf(const std::optional<Result<Acquired>>& received) {
    if (!received || !received->ok()) return -1;
    return *static_cast<const int64_t*>((*received)->views[0].data);
  }
  static bool IsReadable(const Awaitable& source) {
    pollfd descriptor{source.fileno(), POLLIN, 0};
    return ::poll(&descriptor, 1, 0) == 1;
  }

  Broker broker_{{.address = directory_}};
  Broker other_{{.address = directory_}};  // of another session
};

TEST_F(SelectTest, OneOf64ChannelsIsReady) {
  std::vector<Channel> senders;
  std::vector<std::unique_ptr<AwaitedChannel>> channels;
  std::vector<const Awaitable*> sources;
  for (int i = 0; i < 64; ++i) {
    const std::string name = "channel-" + std::to_string(i);
    channels.push_back(std::make_unique<AwaitedChannel>(*other_.OpenChannel(name, Channel::Role::kReceiver)));
    sources.push_back(channels.back().get());
    senders.push_back(Open(name, Channel::Role::kSender));
  }
  const auto none = Select(sources, milliseconds(0));
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
  for (int64_t round = 0; round < 256; ++round) {
    const size_t place = static_cast<size_t>(round * 37 % 64);
    Send(senders[place], round);
    const auto ready = Select(sources, kLong);
    ASSERT_TRUE(ready.ok());
    ASSERT_EQ(*ready, std::vector{place});
    EXPECT_EQ(NumberOf(channels[place]->TryReceive()), round);
  }
}

TEST_F(SelectTest, ABrokerWaitsFor64ChannelsAndTwoForTwiceAsMany) {
  std::vector<std::unique_ptr<AwaitedChannel>> channels;
  std::vector<const Awaitable*> sources;
  const auto await = [&](Broker& broker) {
    const std::string name = "channel-" + std::to_string(channels.size());
    channels.push_back(std::make_unique<AwaitedChannel>(*broker.OpenChannel(name, Channel::Role::kReceiver)));
    sources.push_back(channels.back().get());
  };
  for (int i = 0; i < 64; ++i) await(broker_), await(other_);
  EXPECT_TRUE(Select(sources, milliseconds(100))->empty());
  channels.pop_back(), sources.pop_back();
  for (int i = 0; i < 2; ++i) await(other_);
  const auto ready = Select(sources, kLong);
  ASSERT_TRUE(ready.ok() && !ready->empty());
  const auto told = channels[ready->front()]->TryReceive();
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->status().reason(), "QUEUED_REQUESTS");
  EXPECT_NE(told->status().message().find("the session has 64 requests waiting, the most is 64"), std::string::npos);
}

TEST_F(SelectTest, AChannelIsReadableWhileSomethingIsThere) {
  Channel sender = Open("numbers", Channel::Role::kSender);
  AwaitedChannel channel(*other_.OpenChannel("numbers", Channel::Role::kReceiver));
  EXPECT_FALSE(IsReadable(channel));
  EXPECT_FALSE(channel.TryReceive().has_value());
  EXPECT_EQ(channel.Receive(milliseconds(10)).status().reason(), "CHANNEL_EMPTY");
  for (int64_t number = 0; number < 3; ++number) Send(sender, number);
  for (int64_t number = 0; number < 3; ++number) {
    ASSERT_TRUE(Select({&channel}, kLong).ok());
    EXPECT_TRUE(IsReadable(channel));
    EXPECT_EQ(NumberOf(channel.Receive(kLong)), number);
  }
  EXPECT_TRUE(Select({&channel}, milliseconds(10))->empty());
}

TEST_F(SelectTest, TheEndOfAStreamIsReadyAndIsTold) {
  Channel sender = Open("numbers", Channel::Role::kSender);
  AwaitedChannel channel(*other_.OpenChannel("numbers", Channel::Role::kReceiver));
  Send(sender, 7);
  ASSERT_TRUE(sender.Close().ok());
  EXPECT_EQ(NumberOf(channel.Receive(kLong)), 7);
  ASSERT_EQ(*Select({&channel}, kLong), std::vector<size_t>{0});
  const auto ended = channel.TryReceive();
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->status().reason(), "CHANNEL_ENDED");
}

TEST_F(SelectTest, AnObjectThatWaitsIsDestroyed) {
  Channel sender = Open("numbers", Channel::Role::kSender);
  { const AwaitedChannel channel(*other_.OpenChannel("numbers", Channel::Role::kReceiver)); }
  uint64_t seen = 0;
  EXPECT_EQ(sender.Check(PeerDeath::kTell, &seen).reason(), "RECEIVER_ABANDONED");
}

TEST_F(SelectTest, AServiceIsReadyBesideAChannel) {
  AwaitedService service(*Service::Open(other_, "increment", {}));
  AwaitedChannel channel(*other_.OpenChannel("numbers", Channel::Role::kReceiver));
  auto caller = ServiceCaller::Open(broker_, "increment");
  ASSERT_TRUE(caller.ok());
  for (int64_t number = 0; number < 3; ++number) {
    const View view = *Describe(&number, {0, 64, 1}, {1}, {}, {}, true, nullptr);
    auto answer = caller->Submit({view}, {.timeout = kLong});
    ASSERT_EQ(*Select({&channel, &service}, kLong), std::vector<size_t>{1});
    auto request = service.TryReceive();
    ASSERT_TRUE(request.has_value() && request->ok());
    int64_t next = *static_cast<const int64_t*>((*request)->value().views[0].data) + 1;
    const View reply = *Describe(&next, {0, 64, 1}, {1}, {}, {}, true, nullptr);
    EXPECT_TRUE(*(*request)->Reply({&reply, 1}));
    EXPECT_EQ(NumberOf(answer.get()), number + 1);
  }
  EXPECT_TRUE(Select({&channel, &service}, milliseconds(0))->empty());
}

TEST_F(SelectTest, NothingToWaitForIsRefused) { EXPECT_EQ(Select({}, kLong).status().code(), Code::kInvalidArgument); }

}  // namespace
}  // namespace arraybridge
