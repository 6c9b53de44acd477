// SPDX-License-Identifier: Apache-2.0
// The RemoteServer is the public door over TCP: the same service for connections with TLS and a client certificate.
// Connections are accepted and counted before gRPC gets them.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "daemon/config/config.h"
#include "daemon/service/grpc/grpc_reflection.h"
#include "daemon/service/system/certificates.h"
#include "daemon/service/system/remote_connections.h"
#include "daemon/service/telemetry/log_throttle.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Thread-safe.
class RemoteServer {
 public:
  // All arguments must outlive it. Health reports SERVING for `name`.
  RemoteServer(const Config& config, Certificates& certificates, RemoteConnections& connections, grpc::Service& service,
               GrpcReflection& reflection, const std::string& name);
  ~RemoteServer();
  RemoteServer(const RemoteServer&) = delete;
  RemoteServer& operator=(const RemoteServer&) = delete;

  // Takes over an accepted, non-blocking TCP socket. Refuses (closes) it above the limits of RemoteConnections; shuts
  // it down if it presents no certificate within limits.hello_timeout. REQUIRES: the server is not shutting down.
  void Adopt(UniqueFd socket) AB_EXCLUDES(mutex_);

  grpc::Server& server() { return *server_; }

 private:
  class Credentials;

  RemoteConnections& connections_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  LogThrottle refusals_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
