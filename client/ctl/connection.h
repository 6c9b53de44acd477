// A Connection is one gRPC channel to a broker's public door, over a socket that is connected already: so a broker that
// is not there, and one that we may not talk to, are told apart. A session is opened when a verb first needs one.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "arraybridge/v1/broker.grpc.pb.h"
#include "client/ctl/tls.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// What `address` (empty: not given) and the environment say: a directory with sockets, or a unix:// or tcp:// URI.
// Order: argument, $ARRAYBRIDGE_ADDRESS, $XDG_RUNTIME_DIR/arraybridge, /run/arraybridge; the last two if there is a
// socket. Returns the socket's path, or tcp://HOST:PORT. `socket`: its name in such a directory.
Result<std::string> FindBroker(const std::string& address, const std::string& socket = "broker.sock");

// A channel over a socket that is connected already. UNAVAILABLE: nobody listens there. PERMISSION_DENIED: somebody
// does, but not to us.
Result<std::shared_ptr<grpc::Channel>> ChannelTo(const std::string& path);

class Connection {
 public:
  // UNAVAILABLE: nobody listens there. PERMISSION_DENIED: somebody does, but not to us. `address`: as of FindBroker;
  // `identity`: for tcp:// alone.
  static Result<std::unique_ptr<Connection>> To(const std::string& address, const TlsIdentity& identity,
                                                std::chrono::milliseconds timeout, std::string token);
  // Ends the session.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Result<v1::GetServerInfoResponse> GetServerInfo();
  Result<v1::GetStatsResponse> GetStats();
  Result<v1::InspectResponse> Inspect(const v1::InspectRequest& request);
  Result<v1::WithdrawResponse> Withdraw(const v1::WithdrawRequest& request);
  // Until `take` wants no more, or the broker ends it: that is an error. `opened`: called once it is open, before there
  // are events; whether to go on. The connection's time is for the beginning alone: a watch takes as long as it takes.
  // REQUIRES: nothing was asked before that needs a session.
  Status Watch(const v1::WatchRequest& request, const std::function<Result<bool>()>& opened,
               const std::function<bool(const v1::Event&)>& take);
  // Every page, as one answer.
  Result<v1::ListResponse> List(v1::ListRequest request);
  // The page at the request's token, which may lie in an arena.
  Status ListPage(const v1::ListRequest& request, v1::ListResponse* page);
  // Its number; 0: none is open yet.
  uint64_t session() const { return session_number_; }

 private:
  Connection(std::shared_ptr<grpc::Channel> channel, std::chrono::system_clock::time_point deadline, std::string token);
  // `lasting`: the session does not end with the connection's time.
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
  const std::chrono::system_clock::time_point deadline_;  // of everything this command does
  const std::string token_;                               // that the session states
  std::string session_;                                   // hex of its token; empty: none yet
  uint64_t session_number_ = 0;
  grpc::ClientContext stream_context_;
  std::unique_ptr<grpc::ClientReader<v1::SessionEvent>> stream_;
};

}  // namespace arraybridge::ctl
