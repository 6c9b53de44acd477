// SPDX-License-Identifier: Apache-2.0
// gRPC reports most failures as a closed socket. So after a failure this file repeats the connection with OpenSSL, to
// distinguish errors of the network, of TLS, of the broker's certificate and of ours.
#include "client/ctl/tls.h"

#include <grpc/grpc_security_constants.h>
#include <netdb.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "proto/boundary/endpoint.h"
#include "proto/boundary/environment.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::ctl {
namespace {

struct Free {
  void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
  void operator()(SSL* one) const { ::SSL_free(one); }
  void operator()(BIO* bio) const { ::BIO_free(bio); }
  void operator()(X509* one) const { ::X509_free(one); }
  void operator()(EVP_PKEY* key) const { ::EVP_PKEY_free(key); }
  void operator()(addrinfo* found) const { ::freeaddrinfo(found); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

std::string Or(const std::string& said, const char* variable) { return said.empty() ? Environment(variable) : said; }

Result<std::string> ReadFile(const std::string& path, std::string_view flag, std::string_view variable) {
  if (path.empty()) return InvalidArgument("over TCP ", flag, " (or $", variable, ") must name a file");
  std::ifstream from(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(from), {}};
  if (!from.good() && !from.eof()) return InvalidArgument(flag, ": ", path, ": ", std::strerror(errno));
  return text;
}

int NoPassword(char*, int, int, void*) { return 0; }

Owned<BIO> Over(const std::string& pem) {
  return Owned<BIO>(::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

Owned<X509> CertificateIn(BIO* bio) { return Owned<X509>(::PEM_read_bio_X509(bio, nullptr, NoPassword, nullptr)); }

// Null: OpenSSL refuses `cert` or `key`, although ReadTlsIdentity has checked them.
Owned<SSL_CTX> ContextOf(const TlsIdentity& identity) {
  Owned<SSL_CTX> context(::SSL_CTX_new(::TLS_client_method()));
  const auto chain = Over(identity.cert);
  const auto own = CertificateIn(chain.get());
  const Owned<EVP_PKEY> key(::PEM_read_bio_PrivateKey(Over(identity.key).get(), nullptr, NoPassword, nullptr));
  if (::SSL_CTX_use_certificate(context.get(), own.get()) != 1) return nullptr;
  while (auto next = CertificateIn(chain.get())) ::SSL_CTX_add0_chain_cert(context.get(), next.release());
  if (::SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) return nullptr;
  const auto authorities = Over(identity.ca);
  X509_STORE* const store = ::SSL_CTX_get_cert_store(context.get());
  while (const auto one = CertificateIn(authorities.get())) ::X509_STORE_add_cert(store, one.get());
  ::SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  ::SSL_CTX_set_alpn_protos(context.get(), kHttp2, sizeof kHttp2);
  return context;
}

Status CannotConnect(const std::string& address, std::string_view why) {
  return Unavailable("cannot connect to ", address, ": ", why);
}

void SetPatience(int socket, std::chrono::system_clock::time_point deadline) {
  const auto left = std::max<int64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::system_clock::now()).count(), 1);
  timeval time{};
  time.tv_sec = left / 1000;
  time.tv_usec = left % 1000 * 1000;
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);  // also limits connect()
}

Result<UniqueFd> Connect(const std::string& address, const Endpoint& endpoint,
                         std::chrono::system_clock::time_point deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const int failed = ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &first);
  if (failed != 0) return CannotConnect(address, ::gai_strerror(failed));
  const Owned<addrinfo> found(first);
  int error = 0;
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    UniqueFd socket(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    SetPatience(socket.get(), deadline);
    if (socket.valid() && ::connect(socket.get(), each->ai_addr, each->ai_addrlen) == 0) return socket;
    error = errno;
  }
  return CannotConnect(address, std::strerror(error));
}

void Expect(SSL* tls, const std::string& name) {
  if (::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(tls), name.c_str()) == 1) return;
  ::SSL_set_tlsext_host_name(tls, name.c_str());
  ::SSL_set1_host(tls, name.c_str());
}

// Finds out why gRPC could not connect.
Status WhyNot(const std::string& address, const Endpoint& endpoint, const TlsIdentity& identity,
              std::chrono::system_clock::time_point deadline) {
  const auto socket = Connect(address, endpoint, deadline);
  if (!socket.ok()) return socket.status();
  std::signal(SIGPIPE, SIG_IGN);  // the peer may close the connection while we write; the command fails either way
  const auto context = ContextOf(identity);
  if (context == nullptr) return CannotConnect(address, "this certificate cannot be used");
  const Owned<SSL> tls(::SSL_new(context.get()));
  Expect(tls.get(), identity.name.empty() ? endpoint.host : identity.name);
  ::SSL_set_fd(tls.get(), socket->get());
  const int connected = ::SSL_connect(tls.get());
  const int64_t verified = ::SSL_get_verify_result(tls.get());
  const Owned<X509> shown(::SSL_get1_peer_certificate(tls.get()));
  if (verified != X509_V_OK) {
    return CannotConnect(address,
                         Concat("its certificate is not trusted (", ::X509_verify_cert_error_string(verified), ")"));
  }
  if (connected != 1 && shown == nullptr)
    return CannotConnect(address, "it does not speak TLS, or its connections are exhausted");
  // The broker speaks first, after it has accepted our certificate.
  char byte = 0;
  if (connected == 1 && ::SSL_read(tls.get(), &byte, 1) == 1)
    return CannotConnect(address, "it does not answer as gRPC");
  return PermissionDenied(
      address, " refuses this certificate: it is expired, or not signed by the broker's authority for clients");
}

}  // namespace

TlsOptions WithEnvironment(TlsOptions options) {
  options.cert = Or(options.cert, "ARRAYBRIDGE_TLS_CERT");
  options.key = Or(options.key, "ARRAYBRIDGE_TLS_KEY");
  options.ca = Or(options.ca, "ARRAYBRIDGE_TLS_CA");
  options.name = Or(options.name, "ARRAYBRIDGE_TLS_NAME");
  return options;
}

Result<TlsIdentity> ReadTlsIdentity(const TlsOptions& options) {
  auto cert = ReadFile(options.cert, "--tls-cert", "ARRAYBRIDGE_TLS_CERT");
  if (!cert.ok()) return cert.status();
  auto key = ReadFile(options.key, "--tls-key", "ARRAYBRIDGE_TLS_KEY");
  if (!key.ok()) return key.status();
  auto ca = ReadFile(options.ca, "--tls-ca", "ARRAYBRIDGE_TLS_CA");
  if (!ca.ok()) return ca.status();
  const auto own = CertificateIn(Over(*cert).get());
  if (own == nullptr) return InvalidArgument("--tls-cert: ", options.cert, ": contains no certificate in PEM");
  const Owned<EVP_PKEY> private_key(::PEM_read_bio_PrivateKey(Over(*key).get(), nullptr, NoPassword, nullptr));
  if (private_key == nullptr) {
    return InvalidArgument("--tls-key: ", options.key, ": contains no private key in PEM without a password");
  }
  if (::X509_check_private_key(own.get(), private_key.get()) != 1) {
    return InvalidArgument("--tls-key: ", options.key, ": does not fit the certificate in ", options.cert);
  }
  if (CertificateIn(Over(*ca).get()) == nullptr) {
    return InvalidArgument("--tls-ca: ", options.ca, ": contains no certificate in PEM");
  }
  ::ERR_clear_error();
  return TlsIdentity{*std::move(cert), *std::move(key), *std::move(ca), options.name};
}

Result<std::shared_ptr<grpc::Channel>> ChannelOverTls(const std::string& address, const TlsIdentity& identity,
                                                      std::chrono::system_clock::time_point deadline) {
  const auto endpoint = ReadEndpoint(std::string_view(address).substr(std::strlen(kTcpScheme)));
  if (!endpoint.ok()) return endpoint.status();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);  // unlimited: the pages come from our own broker, which limits them
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (!identity.name.empty()) arguments.SetSslTargetNameOverride(identity.name);
  auto channel = grpc::CreateCustomChannel(endpoint->text(),
                                           grpc::SslCredentials({identity.ca, identity.key, identity.cert}), arguments);
  for (auto state = channel->GetState(true); state != GRPC_CHANNEL_READY; state = channel->GetState(true)) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) {
      return WhyNot(address, *endpoint, identity, deadline);
    }
    if (!channel->WaitForStateChange(state, deadline)) return DeadlineExceeded(address, " did not answer in time");
  }
  return channel;
}

}  // namespace arraybridge::ctl
