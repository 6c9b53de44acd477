// SPDX-License-Identifier: Apache-2.0
// Copies one array between a .npy file and a share. The bytes go through the client library, piece by piece, from the
// file into broker memory or back, and through no other buffer.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include <arraybridge/broker.h>

#include "client/ctl/commands.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// Large arrays are copied in pieces of this size.
inline constexpr uint64_t kPieceBytes = 16 << 20;

// Returns a client of the broker that the options name, on the lifeline socket beside its gRPC socket.
// INVALID_ARGUMENT: the broker is on another host.
Result<Broker> ClientOf(const Options& options);

struct PutWishes {
  std::string file;
  std::string name;  // empty: the name of the file without its ending
  bool replace = false;
  std::chrono::milliseconds lifetime{0};  // 0: the default of the namespace
  bool hold = false;                      // the share exists as long as the command runs
};
// Publishes the array and prints how long the share will exist. FAILED_PRECONDITION: the share ended with this command,
// because its namespace withdraws the shares of sessions that end; use `hold` there. INVALID_ARGUMENT, UNIMPLEMENTED:
// the file is not one array that can be shared as it is.
Status Put(const Options& options, const PutWishes& wishes, std::ostream& out);

struct DumpWishes {
  std::string share;
  uint64_t generation = 0;        // 0: the newest
  std::optional<uint64_t> array;  // index in a share of several arrays
  std::string file;
  bool force = false;  // replaces a file of this name
};
// The file appears under its name when it is complete. ALREADY_EXISTS: the name exists, and `force` is false.
Status Dump(const Options& options, const DumpWishes& wishes, std::ostream& out);

}  // namespace arraybridge::ctl
