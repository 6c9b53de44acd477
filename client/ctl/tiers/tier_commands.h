// SPDX-License-Identifier: Apache-2.0
// The commands about shares whose bytes are in files: they list the files, move bytes, and compare digests.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "client/ctl/commands.h"

namespace arraybridge::ctl {

struct PinArgument {
  ShareArgument share;
  std::string pin;
  int32_t priority = 0;
};

// Prints the shares of the namespace of the options, or of "default", that have a file, and how much the files use.
Status TierLs(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out);
// FAILED_PRECONDITION: a process reads the share, or the broker has no directory for files.
Status TierOut(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out);
Status TierIn(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out);
Status TierKeep(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out);
// Sets the pin and the priority of the options.
Status TierPin(Connection& connection, const Options& options, const PinArgument& pin, std::ostream& out);
// Compares the bytes of each file of the namespace, or of the share's alone, with their digest. DATA_LOSS: one differs.
Status TierVerify(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out);

}  // namespace arraybridge::ctl
