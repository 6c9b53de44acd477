// SPDX-License-Identifier: Apache-2.0
// GrpcCallers identifies the callers of a public door. On this host the kernel reports the user when a connection is
// made; over TCP the certificate identifies the subject in each call.
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

  // UNAVAILABLE: the connection has ended. Any other error: the caller has no rights here.
  virtual Result<Peer> PeerOf(const grpc::CallbackServerContext& context) = 0;
  // The same; returns only the user.
  virtual Result<uint32_t> UserOf(const grpc::CallbackServerContext& context) = 0;
  // Checks the caller of a call without a session. Logs a refusal.
  virtual Status CheckMayAsk(const grpc::CallbackServerContext& context) = 0;
};

// The callers of the Unix socket: every process that can connect may make calls.
class LocalCallers final : public GrpcCallers {
 public:
  explicit LocalCallers(GrpcDoorConnections& connections) : connections_(connections) {}

  Result<Peer> PeerOf(const grpc::CallbackServerContext& context) override;
  Result<uint32_t> UserOf(const grpc::CallbackServerContext& context) override;
  Status CheckMayAsk(const grpc::CallbackServerContext&) override { return Ok(); }

 private:
  GrpcDoorConnections& connections_;
};

// The callers over TCP: a subject that is in no namespace's access list may make no call.
class RemoteCallers final : public GrpcCallers {
 public:
  // `known`: the subjects of the daemons before this one.
  RemoteCallers(const Limits& limits, Broker& broker, RemoteConnections& connections, const std::vector<Subject>& known)
      : broker_(broker),
        connections_(connections),
        subjects_(
            limits, known, [&broker](uint32_t number, const auto& names) { return broker.KeepSubject(number, names); },
            [&broker](std::span<const uint32_t> numbers) { return broker.ForgetSubject(numbers); }) {}

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
