// SPDX-License-Identifier: Apache-2.0
// A daemon, programs and brokers of this process that pass numbers through a channel: arrays full of one number each.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <arraybridge/broker.h>

#include "tests/integration/processes.h"

namespace arraybridge {

class DirectTest : public DaemonTest {
 protected:
  static constexpr int64_t kWords = 512;

  explicit DirectTest(std::vector<std::string> options = {}) : DaemonTest(std::move(options)) {}

  Broker::Options options() const { return {.address = directory_, .timeout = std::chrono::seconds(30)}; }
  std::vector<std::string> Program(std::vector<std::string> words) const {
    std::vector<std::string> all{Built(DIRECT_PROGRAM), directory_};
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }

  static Status Send(Broker& broker, Channel& end, uint64_t number, const std::string& metadata = {},
                     std::optional<std::chrono::milliseconds> timeout = {}, int64_t words = kWords) {
    const ArraySpec spec{.type = {1, 64, 1}, .dtype = "uint64", .shape = {words}, .strides = {}};
    auto placement = broker.Empty({&spec, 1});
    if (!placement.ok()) return placement.status();
    auto* const data = static_cast<uint64_t*>(placement->views()[0].data);
    std::fill_n(data, words, number);
    return end.Send(*placement, {.metadata = metadata, .timeout = timeout});
  }
  // Its number, or 999999 if it is not full of one.
  static uint64_t NumberOf(const Acquired& array) {
    const auto* const words = static_cast<const uint64_t*>(array.views[0].data);
    const auto count = static_cast<size_t>(array.views[0].shape[0]);
    return std::all_of(words, words + count, [&](uint64_t word) { return word == words[0]; }) ? words[0] : 999999;
  }
  static uint64_t Receive(Channel& end) {
    const auto received = end.Receive({.timeout = std::chrono::seconds(30)});
    EXPECT_TRUE(received.ok()) << received.status().ToString();
    return received.ok() ? NumberOf(*received) : 999999;
  }
  // Numbers from `*next` on, until both use the direct channel.
  static void Meet(Broker& sender, Channel& sends, Broker& receiver, Channel& receives, uint64_t* next) {
    const uint64_t before = receiver.client_stats().direct_shares;
    for (int i = 0; i < 2000 && receiver.client_stats().direct_shares == before; ++i) {
      ASSERT_TRUE(Send(sender, sends, *next).ok());
      ASSERT_EQ(Receive(receives), *next);
      ++*next;
    }
    ASSERT_GT(receiver.client_stats().direct_shares, before);
    ASSERT_GT(sender.client_stats().direct_shares, 0u);
  }
  // The lines of a receiver's output: numbers, then the reason of the end.
  static std::vector<uint64_t> Numbers(Process& receiver, std::string* end) {
    std::vector<uint64_t> numbers;
    for (std::string line = receiver.Line(); !line.empty(); line = receiver.Line()) {
      if (line.find_first_not_of("0123456789") != std::string::npos) return *end = line, numbers;
      numbers.push_back(std::stoull(line));
    }
    *end = "";
    return numbers;
  }
  static std::vector<uint64_t> UpTo(uint64_t count) {
    std::vector<uint64_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
};

// Two brokers of this process, and an end of each.
class DirectPairTest : public DirectTest {
 protected:
  explicit DirectPairTest(std::vector<std::string> daemon_options = {}, uint64_t capacity = 4)
      : DirectTest(std::move(daemon_options)),
        sender_(options()),
        receiver_(options()),
        receives_(receiver_.OpenChannel("c", Channel::Role::kReceiver, capacity)),
        sends_(sender_.OpenChannel("c", Channel::Role::kSender)) {}

  void MeetHere() { Meet(sender_, *sends_, receiver_, *receives_, &next_); }
  uint64_t direct_shares() const { return sender_.client_stats().direct_shares; }

  Broker sender_;
  Broker receiver_;
  Result<Channel> receives_;
  Result<Channel> sends_;
  uint64_t next_ = 0;
};

}  // namespace arraybridge
