// With what a command shows itself to a broker on another host, and how it gets there: over TCP there is TLS alone,
// with a certificate on both sides.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "proto/boundary/result.h"

namespace arraybridge::ctl {

inline constexpr char kTcpScheme[] = "tcp://";
inline bool IsRemote(const std::string& address) { return address.starts_with(kTcpScheme); }

// Files, of what flags and the environment say.
struct TlsOptions {
  std::string cert;
  std::string key;
  std::string ca;
  std::string name;  // that the broker's certificate must have; empty: the host of the address
};
// Where nothing was said: $ARRAYBRIDGE_TLS_CERT, _KEY, _CA, _NAME.
TlsOptions WithEnvironment(TlsOptions options);

// What is in them.
struct TlsIdentity {
  std::string cert;
  std::string key;
  std::string ca;
  std::string name;
};
// INVALID_ARGUMENT names what was not said, or the file and what is wrong with it.
Result<TlsIdentity> ReadTlsIdentity(const TlsOptions& options);

// `address`: tcp://HOST:PORT. A channel that is connected. UNAVAILABLE: nobody answers there, or not by TLS, or one who
// is not the broker that the authority means; PERMISSION_DENIED: it refuses us; DEADLINE_EXCEEDED.
Result<std::shared_ptr<grpc::Channel>> ChannelOverTls(const std::string& address, const TlsIdentity& identity,
                                                      std::chrono::system_clock::time_point deadline);

}  // namespace arraybridge::ctl
