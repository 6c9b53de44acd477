// One array of a share, in from a .npy file or out to one. The bytes go by the client library, as those of every
// program: from the file into broker memory, and from there into the file, piece by piece, and nowhere else.
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

// The bytes of a big array are moved so many at a time.
inline constexpr uint64_t kPieceBytes = 16 << 20;

// A client of the broker that the options name, by the lifeline beside its gRPC socket. INVALID_ARGUMENT: it is on
// another host. `holds`: shares that it has found before it gets without a call.
Result<Broker> ClientOf(const Options& options, bool holds = true);

struct PutWishes {
  std::string file;
  std::string name;  // empty: the file's, without its ending
  bool replace = false;
  std::chrono::milliseconds lifetime{0};  // 0: what the namespace says
  bool hold = false;                      // the share is there as long as the command runs
};
// Tells what becomes of the share once the command has ended. FAILED_PRECONDITION: it has gone with the command, since
// its namespace withdraws the shares of sessions that end; `hold` is for that. INVALID_ARGUMENT and UNIMPLEMENTED: the
// file is not one array that can be shared as it is.
Status Put(const Options& options, const PutWishes& wishes, std::ostream& out);

struct DumpWishes {
  std::string share;
  uint64_t generation = 0;        // 0: the newest
  std::optional<uint64_t> array;  // of a share of several
  std::string file;
  bool force = false;  // a file of this name may be replaced
};
// The file is there when all of it is, and not before. ALREADY_EXISTS: something is, and `force` was not said.
Status Dump(const Options& options, const DumpWishes& wishes, std::ostream& out);

}  // namespace arraybridge::ctl
