// SPDX-License-Identifier: Apache-2.0
// A Connection is one gRPC channel to a broker's public socket. The socket is connected before gRPC gets it, so that
// errors distinguish a broker that does not run from one that refuses this user. The first verb opens the session.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "arraybridge/v1/broker.grpc.pb.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// The reason of an error to connect to a socket of this host.
inline constexpr char kNoConnectionReason[] = "NO_CONNECTION";

// Finds the broker that `address` (empty: not given) names: a directory with sockets, or a unix:// URI. Without an
// address: FindAddress. Returns the path of the socket. `socket`: the name of the socket in such a directory.
Result<std::string> FindBroker(const std::string& address, const std::string& socket = "broker.sock");

// Returns a channel over a connected socket. UNAVAILABLE: no process listens there. PERMISSION_DENIED: this user must
// not connect.
Result<std::shared_ptr<grpc::Channel>> ChannelTo(const std::string& path);

class Connection {
 public:
  // As ChannelTo.
  static Result<std::unique_ptr<Connection>> To(const std::string& path, std::chrono::milliseconds timeout,
                                                std::string token);
  // Ends the session.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Result<v1::GetServerInfoResponse> GetServerInfo();
  Result<v1::GetStatsResponse> GetStats();
  Result<v1::InspectResponse> Inspect(const v1::InspectRequest& request);
  Result<v1::WithdrawResponse> Withdraw(const v1::WithdrawRequest& request);
  Result<v1::TierResponse> Tier(const v1::TierRequest& request);
  // Passes events to `take` until it returns false, or until the broker ends the stream, which is an error. `opened` is
  // called when the stream is open, before the first event, and says whether to continue. The deadline of the
  // connection covers the opening of the stream only. REQUIRES: no call has opened a session.
  Status Watch(const v1::WatchRequest& request, const std::function<Result<bool>()>& opened,
               const std::function<bool(const v1::Event&)>& take);
  // Fetches all pages and returns them as one answer.
  Result<v1::ListResponse> List(v1::ListRequest request);
  // Fetches the page at the request's token. `page` may lie in an arena.
  Status ListPage(const v1::ListRequest& request, v1::ListResponse* page);
  // The number of the session; 0: none is open.
  uint64_t session() const { return session_number_; }

 private:
  Connection(std::shared_ptr<grpc::Channel> channel, std::chrono::system_clock::time_point deadline, std::string token);
  // `lasting`: the session outlives the deadline of the connection.
  Status OpenSession(bool lasting = false);
  void Prepare(grpc::ClientContext& context) const;
  template <class Request, class Response>
  Result<Response> Ask(grpc::Status (v1::Broker::Stub::*verb)(grpc::ClientContext*, const Request&, Response*),
                       const Request& request);
  template <class Request, class Response>
  Status AskInto(Response* response,
                 grpc::Status (v1::Broker::Stub::*verb)(grpc::ClientContext*, const Request&, Response*),
                 const Request& request);

  const std::unique_ptr<v1::Broker::Stub> stub_;
  const std::chrono::system_clock::time_point deadline_;  // of the whole command
  const std::string token_;                               // stated when the session opens
  std::string session_;                                   // the session's token in hexadecimal; empty: no session
  uint64_t session_number_ = 0;
  grpc::ClientContext stream_context_;
  std::unique_ptr<grpc::ClientReader<v1::SessionEvent>> stream_;
};

}  // namespace arraybridge::ctl
