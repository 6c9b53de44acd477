// SPDX-License-Identifier: Apache-2.0
// A client without the client library: frames on a socket.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/system/listener.h"
#include "proto/boundary/frame.h"

namespace arraybridge::daemon {

class LifelineClient {
 public:
  struct Got {
    FrameHeader header{};
    std::string payload;
    UniqueFd descriptor;
    std::vector<UniqueFd> more;
    bool closed = false;

    Code code() const { return Code{header.status}; }
    template <class Message>
    Message As() const {
      Message message;
      EXPECT_TRUE(message.ParseFromString(payload));
      return message;
    }
    v1::Error error() const { return As<v1::Error>(); }
  };

  explicit LifelineClient(UniqueFd socket) : socket_(std::move(socket)), buffer_(kFrameBytesMax) {}

  // Both ends of a new connection: the client's, and the one that the door adopts.
  static std::pair<LifelineClient, Connection> Pair(uint32_t uid = 1000) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    Connection connection;
    connection.socket.reset(ends[1]);
    connection.peer.uid = uid;
    return {LifelineClient(UniqueFd(ends[0])), std::move(connection)};
  }

  int fd() const { return socket_.get(); }
  void Close() { socket_.reset(); }

  SendOutcome Send(Verb verb, const std::string& payload, uint64_t request = 1, uint16_t flags = 0,
                   int descriptor = -1) {
    return SendFrame(socket_.get(), {static_cast<uint16_t>(verb), flags, 0, request}, payload, descriptor, true);
  }
  Got Receive() {
    Got got;
    Frame frame;
    if (ReceiveFrame(socket_.get(), buffer_, true, &frame) != ReceiveOutcome::kFrame) {
      got.closed = true;
      return got;
    }
    got.header = frame.header;
    got.payload = std::string(frame.payload);
    got.descriptor = std::move(frame.descriptor);
    got.more = std::move(frame.more);
    return got;
  }
  Got Call(Verb verb, const google::protobuf::MessageLite& message, uint64_t request = 1) {
    EXPECT_EQ(Send(verb, message.SerializeAsString(), request), SendOutcome::kSent);
    return Receive();
  }
  static v1::OpenSessionRequest HelloMessage() {
    v1::OpenSessionRequest hello;
    hello.set_protocol_min(kProtocolVersion);
    hello.set_protocol_max(kProtocolVersion);
    return hello;
  }
  Got Hello() { return Call(Verb::kOpenSession, HelloMessage()); }

 private:
  UniqueFd socket_;
  std::vector<std::byte> buffer_;
};

}  // namespace arraybridge::daemon
