// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/grpc/grpc_meter.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "daemon/service/grpc/grpc_sockets.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {
namespace {

using Type = Http2Frame::Type;

std::string FrameOf(uint8_t type, uint8_t flags, uint32_t stream, size_t bytes = 0) {
  const auto byte = [](uint64_t value) { return static_cast<char>(value & 0xff); };
  std::string frame{byte(bytes >> 16),       byte(bytes >> 8),         byte(bytes),
                    static_cast<char>(type), static_cast<char>(flags), byte(stream >> 24),
                    byte(stream >> 16),      byte(stream >> 8),        byte(stream)};
  return frame + std::string(bytes, '\0');
}
std::string Preface() { return std::string(Http2Frames::kPrefaceBytes, 'P'); }
std::string Call(uint32_t stream, size_t bytes = 5, uint8_t flags = Http2Frame::kEndStream) {
  return FrameOf(Type::kHeaders, Http2Frame::kEndHeaders, stream, 40) + FrameOf(Type::kData, flags, stream, bytes);
}
std::string Answer(uint32_t stream) {
  return FrameOf(Type::kData, 0, stream, 9) +
         FrameOf(Type::kHeaders, Http2Frame::kEndHeaders | Http2Frame::kEndStream, stream, 7);
}

class GrpcMeterTest : public testing::Test {
 protected:
  GrpcMeterTest() {
    limits_.grpc_streams_max = 3;
    limits_.requests_per_uid = 40;       // so 5 calls, and 640 KiB
    limits_.grpc_resets_per_second = 2;  // so 4 at once
    limits_.grpc_header_bytes_max = 200;
    Begin();
  }

  // A new connection of the same user.
  void Begin() {
    meter_ = std::make_unique<GrpcMeter>(limits_, user_);
    EXPECT_TRUE(Receive(Preface() + FrameOf(Type::kSettings, 0, 0)));
  }
  bool Receive(std::string bytes) {
    iovec piece{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    return meter_->Receive(message, bytes.size());
  }
  void Send(std::string bytes) {
    iovec piece{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    meter_->Send(message, [&] { return static_cast<ssize_t>(bytes.size()); });
  }
  void ExpectExceeded(const std::string& limit) {
    ASSERT_NE(meter_->exceeded(), nullptr);
    EXPECT_EQ(meter_->exceeded(), limit);
    EXPECT_FALSE(Receive(FrameOf(Type::kSettings, Http2Frame::kAck, 0)));  // nothing helps
  }

  Limits limits_;
  std::shared_ptr<GrpcUser> user_ = std::make_shared<GrpcUser>(1000, limits_);
  std::unique_ptr<GrpcMeter> meter_;
};

TEST_F(GrpcMeterTest, AnsweredCallsCostNothing) {
  for (uint32_t stream = 1; stream < 1000; stream += 2) {
    ASSERT_TRUE(Receive(Call(stream, 300)));
    Send(Answer(stream));
    ASSERT_TRUE(Receive(FrameOf(Type::kWindowUpdate, 0, 0, 4) + FrameOf(Type::kWindowUpdate, 0, stream, 4) +
                        FrameOf(Type::kPing, 0, 0, 8)));
  }
  meter_.reset();
  EXPECT_TRUE(user_->IsBlank());
}

TEST_F(GrpcMeterTest, FramesAreFoundInPiecesOfAnySize) {
  const std::string bytes = Call(1) + FrameOf(Type::kResetStream, 0, 1, 4) + Call(3, 400'000) + Call(5, 400'000);
  for (const char byte : bytes) Receive(std::string(1, byte));
  ExpectExceeded("requests_per_uid");
}

TEST_F(GrpcMeterTest, AConnectionHasAMaximumOfCallsEvenIfItNeverAgreed) {
  EXPECT_TRUE(Receive(Call(1) + Call(3) + Call(5)));
  EXPECT_FALSE(Receive(Call(7)));
  ExpectExceeded("grpc_streams_max");
}

TEST_F(GrpcMeterTest, AUserHasAMaximumOfCallsOverAllConnections) {
  EXPECT_TRUE(Receive(Call(1) + Call(3) + Call(5)));
  const auto first = std::move(meter_);
  Begin();
  EXPECT_TRUE(Receive(Call(1) + Call(3)));
  EXPECT_FALSE(Receive(Call(5)));
  ExpectExceeded("requests_per_uid");
}

TEST_F(GrpcMeterTest, BytesOfRequestsAreChargedUntilTheirCallEnds) {
  EXPECT_TRUE(Receive(Call(1, 600'000)));
  Send(Answer(1));
  EXPECT_TRUE(Receive(Call(3, 600'000, 0)));
  EXPECT_FALSE(Receive(FrameOf(Type::kData, 0, 3, 55'361)));
  ExpectExceeded("requests_per_uid");
}

TEST_F(GrpcMeterTest, HeadersHaveAMaximumInHoweverManyFrames) {
  EXPECT_TRUE(Receive(FrameOf(Type::kHeaders, 0, 1, 40)));
  for (int i = 0; i < 17; ++i) EXPECT_TRUE(Receive(FrameOf(Type::kContinuation, 0, 1))) << i;
  EXPECT_FALSE(Receive(FrameOf(Type::kContinuation, 0, 1)));
  ExpectExceeded("grpc_header_bytes_max");
}

TEST_F(GrpcMeterTest, ResetsAreChargedToTheirUser) {
  for (uint32_t stream = 1; stream < 9; stream += 2) {
    EXPECT_TRUE(Receive(Call(stream) + FrameOf(Type::kResetStream, 0, stream, 4))) << stream;
  }
  Begin();
  EXPECT_FALSE(Receive(Call(1) + FrameOf(Type::kResetStream, 0, 1, 4)));
  ExpectExceeded("grpc_resets_per_second");
}

TEST_F(GrpcMeterTest, AnEndedConnectionHasResetItsCalls) {
  EXPECT_TRUE(Receive(Call(1) + Call(3) + Call(5)));
  Begin();
  EXPECT_TRUE(Receive(Call(1) + Call(3)));
  Begin();
  EXPECT_FALSE(Receive(FrameOf(Type::kResetStream, 0, 1, 4)));
  ExpectExceeded("grpc_resets_per_second");
}

TEST_F(GrpcMeterTest, AResetThatAClientProvokesIsItsOwn) {
  for (uint32_t stream = 1; stream < 11; stream += 2) {
    EXPECT_TRUE(Receive(Call(stream)));
    Send(FrameOf(Type::kResetStream, 0, stream, 4));
  }
  ExpectExceeded("grpc_resets_per_second");
}

TEST_F(GrpcMeterTest, ControlFramesThatAnswerNothingAreChargedLikeResets) {
  Send(FrameOf(Type::kSettings, 0, 0) + FrameOf(Type::kPing, 0, 0, 8));
  EXPECT_TRUE(Receive(FrameOf(Type::kSettings, Http2Frame::kAck, 0) + FrameOf(Type::kPing, Http2Frame::kAck, 0, 8)));
  const std::array<std::string, 6> idle{FrameOf(Type::kSettings, 0, 0),
                                        FrameOf(Type::kSettings, Http2Frame::kAck, 0),
                                        FrameOf(Type::kPing, Http2Frame::kAck, 0, 8),
                                        FrameOf(Type::kPing, 0, 0, 8),
                                        FrameOf(Type::kData, 0, 1),
                                        FrameOf(2, 0, 1, 5)};
  for (const std::string& frame : idle) {
    user_ = std::make_shared<GrpcUser>(1000, limits_);
    Begin();
    EXPECT_TRUE(Receive(frame + frame + frame + frame));
    EXPECT_FALSE(Receive(frame + frame + frame));
    ExpectExceeded("grpc_resets_per_second");
  }
}

TEST(GrpcUserTest, ResetsAreForgivenWithTime) {
  Limits limits;
  limits.grpc_resets_per_second = 10;
  GrpcUser user(1000, limits);
  const auto now = std::chrono::steady_clock::now();
  EXPECT_EQ(user.ChargeResets(20, now), nullptr);
  EXPECT_NE(user.ChargeResets(1, now), nullptr);
  EXPECT_FALSE(user.IsBlank(now + std::chrono::seconds(1)));
  EXPECT_EQ(user.ChargeResets(5, now + std::chrono::seconds(1)), nullptr);
  EXPECT_TRUE(user.IsBlank(now + std::chrono::seconds(4)));
}

// The linker passes calls of recvmsg, sendmsg and close to the meters: without that, no limit would hold.
TEST(GrpcSocketsTest, ASocketIsMeteredUntilItIsClosed) {
  Limits limits;
  limits.grpc_streams_max = 1;
  const auto user = std::make_shared<GrpcUser>(1000, limits);
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  ASSERT_TRUE(MeterSocket(ours.get(), std::make_unique<GrpcMeter>(limits, user)));
  std::array<char, 4096> room{};
  iovec piece{room.data(), room.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  const std::string allowed = Preface() + FrameOf(Type::kSettings, 0, 0) + Call(1);
  ASSERT_EQ(::write(theirs.get(), allowed.data(), allowed.size()), static_cast<ssize_t>(allowed.size()));
  EXPECT_EQ(::recvmsg(ours.get(), &message, 0), static_cast<ssize_t>(allowed.size()));
  EXPECT_EQ(user.use_count(), 2);
  const std::string more = Call(3);
  ASSERT_EQ(::write(theirs.get(), more.data(), more.size()), static_cast<ssize_t>(more.size()));
  EXPECT_EQ(::recvmsg(ours.get(), &message, 0), -1);
  EXPECT_EQ(::read(theirs.get(), room.data(), room.size()), 0);  // it was shut down
  ours.reset();
  EXPECT_EQ(user.use_count(), 1);
}

}  // namespace
}  // namespace arraybridge::daemon
