// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/grpc/grpc_door_server.h"

#include <absl/synchronization/mutex.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <limits>

#include "proto/boundary/result.h"

namespace arraybridge::daemon {
namespace {

constexpr int kThreadsMax = 64;  // of channelz, the only synchronous service

// gRPC's settings are ints; a larger limit is set to the maximum.
int Setting(uint64_t limit) { return static_cast<int>(std::min<uint64_t>(limit, std::numeric_limits<int>::max())); }

}  // namespace

std::unique_ptr<grpc::Server> StartServer(const Config& config, grpc::Service& service, GrpcReflection& reflection,
                                          const std::string& name,
                                          const std::function<void(grpc::ServerBuilder&)>& also) {
  // As packaged, abseil checks the order of gRPC's locks: every lock accesses one table for all threads.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  grpc::EnableDefaultHealthCheckService(true);
  // Without a maximum of bytes: above it, gRPC closes connections of all users. GrpcMeter charges bytes to their
  // own.
  grpc::ResourceQuota quota("arraybridged");
  quota.SetMaxThreads(kThreadsMax);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(Setting(config.limits.frame_bytes_max));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, Setting(config.limits.grpc_streams_max));
  // A message could be a thousand times as large as the bytes that were counted. Calls that compress are refused.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  // A connection that never makes a call, or stops in the middle of a frame, also counts as idle.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             Setting(static_cast<uint64_t>(config.limits.hello_timeout.count())));
  builder.RegisterService(&service);
  builder.RegisterCallbackGenericService(&reflection);
  if (also) also(builder);
  auto server = builder.BuildAndStart();
  AB_CHECK(server != nullptr);  // it fails only if a port cannot be bound, and there is none
  server->GetHealthCheckService()->SetServingStatus(name, true);
  return server;
}

}  // namespace arraybridge::daemon
