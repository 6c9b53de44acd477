// The broker's end of a lifeline, controlled by a test. It can also violate the protocol.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

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
  void Send(const FrameHeader& header, std::string_view payload, int descriptor = -1) {
    EXPECT_EQ(SendFrame(socket_.get(), header, payload, descriptor, true), SendOutcome::kSent);
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
