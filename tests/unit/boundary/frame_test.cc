// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/frame.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>

namespace arraybridge {
namespace {

class FrameTest : public testing::Test {
 protected:
  FrameTest() {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    left_.reset(pair[0]);
    right_.reset(pair[1]);
  }

  ReceiveOutcome Receive(Frame* frame) { return ReceiveFrame(right_.get(), buffer_, false, frame); }

  static size_t OpenDescriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }

  // Sends `count` copies of one descriptor with a header, which our clients never do.
  void SendDescriptors(int count) {
    FrameHeader header{3, 0, 0, 9};
    iovec part{&header, sizeof header};
    std::array<char, CMSG_SPACE(253 * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    const int fd = left_.get();
    for (int i = 0; i < count; ++i) std::memcpy(CMSG_DATA(rights) + i * sizeof fd, &fd, sizeof fd);
    ASSERT_GT(::sendmsg(left_.get(), &message, 0), 0);
  }

  UniqueFd left_, right_;
  std::array<std::byte, kFrameBytesMax> buffer_{};
};

TEST_F(FrameTest, HeaderPayloadAndDescriptorArriveTogether) {
  const UniqueFd memory(::memfd_create("frame", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(memory.get(), 12345), 0);
  const FrameHeader header{7, kFrameMemoryWanted, 5, 77};
  ASSERT_EQ(SendFrame(left_.get(), header, "payload", memory.get(), false), SendOutcome::kSent);
  Frame frame;
  ASSERT_EQ(Receive(&frame), ReceiveOutcome::kFrame);
  EXPECT_EQ(std::memcmp(&frame.header, &header, sizeof header), 0);
  EXPECT_EQ(frame.payload, "payload");
  ASSERT_EQ(frame.descriptors(), 1u);
  EXPECT_EQ(::lseek(frame.descriptor.get(), 0, SEEK_END), 12345);
  EXPECT_EQ(::fcntl(frame.descriptor.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST_F(FrameTest, SeveralDescriptorsArriveInOrder) {
  std::vector<UniqueFd> files;
  std::vector<int> numbers;
  for (size_t i = 0; i < kFrameDescriptorsMax; ++i) {
    files.emplace_back(::memfd_create("frame", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(files.back().get(), static_cast<off_t>(i + 1)), 0);
    numbers.push_back(files.back().get());
  }
  ASSERT_EQ(SendFrame(left_.get(), FrameHeader{1, 0, 0, 1}, "x", numbers, false), SendOutcome::kSent);
  Frame frame;
  ASSERT_EQ(Receive(&frame), ReceiveOutcome::kFrame);
  ASSERT_EQ(frame.descriptors(), kFrameDescriptorsMax);
  EXPECT_EQ(::lseek(frame.descriptor.get(), 0, SEEK_END), 1);
  for (size_t i = 0; i < frame.more.size(); ++i) {
    EXPECT_EQ(::lseek(frame.more[i].get(), 0, SEEK_END), static_cast<off_t>(i + 2));
  }
  numbers.push_back(numbers.front());
  EXPECT_DEATH(SendFrame(left_.get(), FrameHeader{1, 0, 0, 1}, "x", numbers, false), "kFrameDescriptorsMax");
}

TEST_F(FrameTest, TheLargestPayloadArrives) {
  const std::string payload(kFrameBytesMax - sizeof(FrameHeader), 'x');
  ASSERT_EQ(SendFrame(left_.get(), FrameHeader{1, 0, 0, 1}, payload, -1, false), SendOutcome::kSent);
  Frame frame;
  ASSERT_EQ(Receive(&frame), ReceiveOutcome::kFrame);
  EXPECT_EQ(frame.payload, payload);
}

TEST_F(FrameTest, ShorterThanAHeaderIsMalformed) {
  ASSERT_EQ(::send(left_.get(), "short", 5, 0), 5);
  Frame frame;
  EXPECT_EQ(Receive(&frame), ReceiveOutcome::kMalformed);
}

TEST_F(FrameTest, LongerThanTheBufferIsMalformed) {
  const std::string much(kFrameBytesMax + 1, 'x');
  ASSERT_GT(::send(left_.get(), much.data(), much.size(), 0), 0);
  Frame frame;
  EXPECT_EQ(Receive(&frame), ReceiveOutcome::kMalformed);
}

TEST_F(FrameTest, AnEmptySocketReturnsAgainWithoutWaiting) {
  Frame frame;
  EXPECT_EQ(Receive(&frame), ReceiveOutcome::kAgain);
}

TEST_F(FrameTest, ADisconnectedPeerIsClosed) {
  left_.reset();
  Frame frame;
  EXPECT_EQ(Receive(&frame), ReceiveOutcome::kClosed);
  EXPECT_EQ(SendFrame(right_.get(), FrameHeader{1, 0, 0, 1}, "x", -1, false), SendOutcome::kClosed);
}

TEST_F(FrameTest, APeerThatDoesNotReadIsNotWaitedFor) {
  SendOutcome outcome = SendOutcome::kSent;
  for (int i = 0; i < 100000 && outcome == SendOutcome::kSent; ++i) {
    outcome = SendFrame(left_.get(), FrameHeader{1, 0, 0, 1}, std::string(4096, 'x'), -1, false);
  }
  EXPECT_EQ(outcome, SendOutcome::kAgain);
}

TEST_F(FrameTest, SurplusDescriptorsAreReceivedSeparately) {
  const size_t before = OpenDescriptors();
  for (const int count : {2, 100, 253}) {
    SendDescriptors(count);
    Frame frame;
    ASSERT_EQ(Receive(&frame), ReceiveOutcome::kFrame);
    EXPECT_EQ(frame.descriptors(), static_cast<size_t>(count));
    EXPECT_EQ(OpenDescriptors(), before + static_cast<size_t>(count));
    frame.more.clear();
    EXPECT_EQ(OpenDescriptors(), before + 1);
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(FrameTest, DescriptorsThatDoNotFitAreMalformedAndNotLeaked) {
  const size_t before = OpenDescriptors();
  SendDescriptors(10);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit tight = old;
  tight.rlim_cur = static_cast<rlim_t>(::dup(left_.get()));  // the next free number...
  ::close(static_cast<int>(tight.rlim_cur));
  tight.rlim_cur += 3;  // ...and two more
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  Frame frame;
  const ReceiveOutcome outcome = Receive(&frame);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_EQ(outcome, ReceiveOutcome::kMalformed);
  frame = Frame{};
  EXPECT_EQ(OpenDescriptors(), before);
}

}  // namespace
}  // namespace arraybridge
