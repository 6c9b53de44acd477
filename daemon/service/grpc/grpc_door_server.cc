#include "daemon/service/grpc/grpc_door_server.h"

#include <absl/synchronization/mutex.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <limits>

#include "proto/boundary/result.h"

namespace arraybridge {
namespace {

constexpr size_t kBufferBytesMax = 64 << 20;  // of all connections together; above it gRPC reads more slowly
constexpr int kThreadsMax = 64;               // of channelz, the only synchronous service

// gRPC's settings are ints; a larger limit is set to the maximum.
int Setting(uint64_t limit) { return static_cast<int>(std::min<uint64_t>(limit, std::numeric_limits<int>::max())); }

}  // namespace

std::unique_ptr<grpc::Server> StartServer(const Config& config, grpc::Service& service, GrpcReflection& reflection,
                                          const std::string& name,
                                          const std::function<void(grpc::ServerBuilder&)>& also) {
  // As packaged, abseil checks the order of gRPC's locks: every lock accesses one table for all threads.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ResourceQuota quota("arraybridged");
  quota.Resize(kBufferBytesMax).SetMaxThreads(kThreadsMax);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(Setting(config.limits.frame_bytes_max));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, Setting(config.limits.grpc_streams_max));
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

}  // namespace arraybridge
