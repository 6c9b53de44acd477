// SPDX-License-Identifier: Apache-2.0
// The broker's end of a lifeline, controlled by a test. It can also violate the protocol.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "proto/boundary/frame.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

struct Request {
  FrameHeader header;
  std::string payload;
};

class FakeBroker {
 public:
  explicit FakeBroker(int socket) : socket_(socket) {}

  Request Next() {
    Frame frame;
    EXPECT_EQ(ReceiveFrame(socket_.get(), buffer_, true, &frame), ReceiveOutcome::kFrame);
    return {frame.header, std::string(frame.payload)};
  }
  bool hears() const {
    pollfd look{socket_.get(), POLLIN, 0};
    return ::poll(&look, 1, 0) > 0;
  }
  void Answer(const Request& request, std::string_view payload, int descriptor = -1) {
    Send({request.header.verb, 0, 0, request.header.request}, payload, descriptor);
  }
  void Answer(const Request& request, const std::vector<UniqueFd>& descriptors) {
    std::vector<int> numbers;
    for (const UniqueFd& each : descriptors) numbers.push_back(each.get());
    const FrameHeader header{request.header.verb, 0, 0, request.header.request};
    EXPECT_EQ(SendFrame(socket_.get(), header, {}, numbers, true), SendOutcome::kSent);
  }
  void Send(const FrameHeader& header, std::string_view payload, int descriptor = -1) {
    EXPECT_EQ(SendFrame(socket_.get(), header, payload, descriptor, true), SendOutcome::kSent);
  }
  // An answer with so many descriptors, whatever a frame may have.
  void SendWithDescriptors(const Request& request, size_t count) {
    const std::vector<int> descriptors(count, socket_.get());
    FrameHeader header{request.header.verb, 0, 0, request.header.request};
    iovec part{&header, sizeof header};
    std::vector<cmsghdr> control(CMSG_SPACE(count * sizeof(int)) / sizeof(cmsghdr) + 1);
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(rights), descriptors.data(), count * sizeof(int));
    EXPECT_EQ(::sendmsg(socket_.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof header));
  }
  void SendRaw(std::string_view bytes) {
    EXPECT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  void HangUp() { socket_.reset(); }

 private:
  UniqueFd socket_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kFrameBytesMax);
};

}  // namespace arraybridge
