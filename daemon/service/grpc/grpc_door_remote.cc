// SPDX-License-Identifier: Apache-2.0
// gRPC's certificate providers do not check that a key matches its certificate. So gRPC asks this code at each
// handshake and gets only checked certificates (grpc_ssl_server_credentials with a fetcher, which has no C++ API).
#include "daemon/service/grpc/grpc_door_remote.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpcpp/resource_quota.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "daemon/service/grpc/grpc_door_server.h"
#include "daemon/service/telemetry/log.h"
#include "proto/boundary/result.h"

namespace arraybridge {
namespace {

// Of all connections together. Their frames are encrypted, so they cannot be charged to a subject; above it gRPC reads
// more slowly.
constexpr size_t kBufferBytesMax = 64 << 20;

int Setting(std::chrono::milliseconds time) {
  return static_cast<int>(std::min<int64_t>(time.count(), std::numeric_limits<int>::max()));
}

}  // namespace

class RemoteServer::Credentials final : public grpc::ServerCredentials {
 public:
  // TLS 1.2 or 1.3, as gRPC supports; a client without a certificate of one of our authorities is refused.
  explicit Credentials(Certificates& certificates) : certificates_(certificates) {
    auto* const options = ::grpc_ssl_server_credentials_create_options_using_config_fetcher(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, &Credentials::Fetch, this);
    credentials_ = ::grpc_ssl_server_credentials_create_with_options(options);  // takes ownership of the options
  }
  ~Credentials() override { ::grpc_server_credentials_release(credentials_); }
  Credentials(const Credentials&) = delete;
  Credentials& operator=(const Credentials&) = delete;

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return ::grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static grpc_ssl_certificate_config_reload_status Fetch(void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<Credentials*>(self)->Give(config);
  }

  // Runs under the lock, so that gRPC receives the certificates in order.
  grpc_ssl_certificate_config_reload_status Give(grpc_ssl_server_certificate_config** config) {
    const MutexLock lock(mutex_);
    auto material = certificates_.Current();
    if (material == given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    given_ = std::move(material);
    const grpc_ssl_pem_key_cert_pair pair{given_->key.c_str(), given_->cert.c_str()};
    *config = ::grpc_ssl_server_certificate_config_create(given_->client_ca.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  Certificates& certificates_;
  grpc_server_credentials* credentials_ = nullptr;
  Mutex mutex_;
  std::shared_ptr<const TlsMaterial> given_ AB_GUARDED_BY(mutex_);
};

RemoteServer::RemoteServer(const Config& config, Certificates& certificates, RemoteConnections& connections,
                           grpc::Service& service, GrpcReflection& reflection, const std::string& name)
    : connections_(connections) {
  const auto over_tls = [&](grpc::ServerBuilder& builder) {
    using External = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(External::FROM_FD,
                                                                     std::make_shared<Credentials>(certificates));
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Setting(config.limits.hello_timeout));
    // A TCP peer whose host fails sends nothing, unlike a peer of a Unix socket, so keepalive detects it.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Setting(config.limits.tcp_keepalive));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Setting(config.limits.tcp_keepalive));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.SetResourceQuota(grpc::ResourceQuota("arraybridged over TCP").Resize(kBufferBytesMax));
  };
  server_ = StartServer(config, service, reflection, name, over_tls);
}

RemoteServer::~RemoteServer() = default;

void RemoteServer::Adopt(UniqueFd socket) {
  if (const Status admitted = connections_.Admit(socket.get()); !admitted.ok()) {
    const MutexLock lock(mutex_);
    const auto dropped = refusals_.Admit(std::chrono::steady_clock::now(), log::LinesPerSecond());
    if (!dropped) return;
    return log::Warn("tcp: a connection was refused: {}{}", admitted.message(),
                     *dropped == 0 ? "" : Concat(" (and ", *dropped, " more)"));
  }
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.fd = socket.release();
  acceptor_->HandleNewConnection(&parameters);
}

}  // namespace arraybridge
