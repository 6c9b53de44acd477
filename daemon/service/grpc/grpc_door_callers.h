// The callers of a public door: who makes this call. On this host the kernel has said so when the connection was made;
// over TCP the certificate says so, in each call anew.
#pragma once

#include <grpcpp/grpcpp.h>

#include "daemon/broker/broker.h"
#include "daemon/service/grpc/grpc_door_connections.h"
#include "daemon/service/system/remote_connections.h"
#include "daemon/service/system/subjects.h"
#include "daemon/service/telemetry/log_throttle.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe.
class GrpcCallers {
 public:
  GrpcCallers() = default;
  GrpcCallers(const GrpcCallers&) = delete;
  GrpcCallers& operator=(const GrpcCallers&) = delete;
  virtual ~GrpcCallers() = default;

  // UNAVAILABLE: the connection has ended. Otherwise: it may ask for nothing here.
  virtual Result<Peer> PeerOf(const grpc::CallbackServerContext& context) = 0;
  // The same, of the user alone.
  virtual Result<uint32_t> UserOf(const grpc::CallbackServerContext& context) = 0;
  // Of a call that names no session. Who may not is told to the log.
  virtual Status CheckMayAsk(const grpc::CallbackServerContext& context) = 0;
};

// Those of the Unix socket: whoever may connect may ask.
class LocalCallers final : public GrpcCallers {
 public:
  explicit LocalCallers(GrpcDoorConnections& connections) : connections_(connections) {}

  Result<Peer> PeerOf(const grpc::CallbackServerContext& context) override;
  Result<uint32_t> UserOf(const grpc::CallbackServerContext& context) override;
  Status CheckMayAsk(const grpc::CallbackServerContext&) override { return Ok(); }

 private:
  GrpcDoorConnections& connections_;
};

// Those over TCP: who is named by no namespace's access list may ask for nothing.
class RemoteCallers final : public GrpcCallers {
 public:
  RemoteCallers(const Limits& limits, const Broker& broker, RemoteConnections& connections)
      : broker_(broker), connections_(connections), subjects_(limits) {}

  Result<Peer> PeerOf(const grpc::CallbackServerContext& context) override;
  Result<uint32_t> UserOf(const grpc::CallbackServerContext& context) override;
  Status CheckMayAsk(const grpc::CallbackServerContext& context) override;

 private:
  void LogRefusal(std::string_view from, const Status& status) AB_EXCLUDES(mutex_);

  const Broker& broker_;
  RemoteConnections& connections_;
  Subjects subjects_;
  Mutex mutex_;
  LogThrottle refusals_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
