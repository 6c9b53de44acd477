// SPDX-License-Identifier: Apache-2.0
// The messages of a session to its broker, with a test's broker.
#include "client/session/session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <set>

#include "arraybridge/v1/broker.pb.h"
#include "client/process/clock_offset.h"
#include "proto/boundary/release_limit.h"
#include "tests/unit/client/quiet_session.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::vector<uint64_t> NumbersFrom(uint64_t first, size_t count) {
  std::vector<uint64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

TEST(SessionTest, WhatIsGivenBackComesInMessagesThatTheBrokerTakes) {
  QuietSession session;
  codec::Release release;
  release.leases = NumbersFrom(1, 3 * kReleaseNumbersMax);
  release.arenas = NumbersFrom(1, 7);
  release.done = NumbersFrom(1, kReleaseNumbersMax + 1);
  release.lost = NumbersFrom(1, 5);
  session->releases().Post(std::move(release));
  std::set<uint64_t> leases, done;
  uint64_t others = 0;
  for (Frame frame; session.Hears(&frame);) {
    v1::ReleaseRequest message;
    ASSERT_TRUE(message.ParseFromArray(frame.payload.data(), static_cast<int>(frame.payload.size())));
    leases.insert(message.leases().begin(), message.leases().end());
    done.insert(message.done().begin(), message.done().end());
    const int few = message.arenas_size() + message.lost_size();
    EXPECT_LE(static_cast<size_t>(message.leases_size() + message.done_size() + few), kReleaseNumbersMax);
    others += static_cast<uint64_t>(few);
  }
  EXPECT_EQ(leases.size(), 3 * kReleaseNumbersMax);
  EXPECT_EQ(done.size(), kReleaseNumbersMax + 1);
  EXPECT_EQ(others, 12u);
}

// A broker in another time namespace. Its first answers arrive late, as if the client had been stopped meanwhile.
class OtherClock {
 public:
  static constexpr milliseconds kAhead{3'600'000};

  explicit OtherClock(int late) : late_(late) {
    std::string folder = ::testing::TempDir() + "/clockXXXXXX";
    directory_ = ::mkdtemp(folder.data());
    const std::string path = directory_ + "/lifeline.sock";
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    EXPECT_LT(path.size(), sizeof name.sun_path);
    path.copy(name.sun_path, path.size());
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~OtherClock() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    std::filesystem::remove_all(directory_);
  }
  OtherClock(const OtherClock&) = delete;
  OtherClock& operator=(const OtherClock&) = delete;

  static int64_t ReadAt(steady_clock::time_point at) {
    return std::chrono::floor<milliseconds>((at + kAhead).time_since_epoch()).count();
  }
  // The header of a List request whose caller waits until `deadline`.
  FrameHeader HearList(steady_clock::time_point deadline) {
    const Session::Shared shared{
        .reclaimer = Reclaimer::Make(ReclaimSessionReleases),
        .mappers = std::make_shared<MapperTable>(std::vector<std::unique_ptr<MemoryMapper>>())};
    auto opened = Session::Open({.address = directory_, .spin = {}}, shared, deadline);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    EXPECT_TRUE((*opened)->Call(Verb::kList, {}, deadline).ok());
    return list_;
  }
  int readings() const { return readings_; }

 private:
  void Serve() {
    const UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::vector<std::byte> buffer(kFrameBytesMax);
    Frame frame;
    while (client.valid() && ReceiveFrame(client.get(), buffer, true, &frame) == ReceiveOutcome::kFrame) {
      const FrameHeader header{frame.header.verb, 0, 0, frame.header.request};
      EXPECT_EQ(SendFrame(client.get(), header, AnswerTo(frame.header), -1, true), SendOutcome::kSent);
    }
  }
  std::string AnswerTo(const FrameHeader& asked) {
    if (Verb{asked.verb} == Verb::kList) {
      list_ = asked;
      return {};
    }
    v1::GetServerInfoResponse info;
    info.set_clock_ms(static_cast<uint64_t>(ReadAt(steady_clock::now())));
    // The client gets its answer only after this delay.
    if (++readings_ <= late_) std::this_thread::sleep_for(milliseconds(300));
    if (Verb{asked.verb} == Verb::kGetServerInfo) return info.SerializeAsString();
    v1::OpenSessionResponse opened;
    opened.set_protocol(kProtocolVersion);
    *opened.mutable_server() = std::move(info);
    return opened.SerializeAsString();
  }

  const int late_;
  const UniqueFd listener_{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  std::string directory_;
  std::atomic<int> readings_{0};
  FrameHeader list_{};
  std::thread thread_;
};

TEST(SessionTest, AClockThatWasHeardLateIsReadAgain) {
  OtherClock broker(1);
  const auto deadline = steady_clock::now() + std::chrono::minutes(1);
  const FrameHeader list = broker.HearList(deadline);
  EXPECT_GE(broker.readings(), 2);
  // On a machine so slow that no reading is precise, the client states no deadline.
  if ((list.flags & kFrameDeadline) == 0) return;
  const auto too_early = static_cast<int32_t>(DeadlineOnWire(OtherClock::ReadAt(deadline)) - list.status);
  EXPECT_GE(too_early, 0) << "the broker would begin it when nobody waits any more";
  EXPECT_LE(too_early, ClockOffset::kCloseMs + 1);
}

TEST(SessionTest, RequestsStateNoDeadlineOnAClockThatIsNotKnown) {
  OtherClock broker(99);
  EXPECT_EQ(broker.HearList(steady_clock::now() + std::chrono::minutes(1)).flags & kFrameDeadline, 0);
  EXPECT_EQ(broker.readings(), 3) << "it does not ask for ever";
}

}  // namespace
}  // namespace arraybridge
