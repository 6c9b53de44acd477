// SPDX-License-Identifier: Apache-2.0
// The TLS identity of a command, and gRPC channels over TLS to a broker on another host. TCP is used with TLS only, and
// both sides show a certificate.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "proto/boundary/result.h"

namespace arraybridge::ctl {

inline constexpr char kTcpScheme[] = "tcp://";
inline bool IsRemote(const std::string& address) { return address.starts_with(kTcpScheme); }

// Paths of files, from flags and the environment.
struct TlsOptions {
  std::string cert;
  std::string key;
  std::string ca;
  std::string name;  // expected name in the broker's certificate; empty: the host of the address
};
// Fills empty members from $ARRAYBRIDGE_TLS_CERT, _KEY, _CA and _NAME.
TlsOptions WithEnvironment(TlsOptions options);

// The content of the files.
struct TlsIdentity {
  std::string cert;
  std::string key;
  std::string ca;
  std::string name;
};
// INVALID_ARGUMENT names the missing option, or the file and its defect.
Result<TlsIdentity> ReadTlsIdentity(const TlsOptions& options);

// Returns a connected channel. `address`: tcp://HOST:PORT. UNAVAILABLE: no process listens there, the peer does not
// speak TLS, or its certificate is not trusted. PERMISSION_DENIED: the broker refuses this certificate.
// DEADLINE_EXCEEDED: no answer in time.
Result<std::shared_ptr<grpc::Channel>> ChannelOverTls(const std::string& address, const TlsIdentity& identity,
                                                      std::chrono::system_clock::time_point deadline);

}  // namespace arraybridge::ctl
