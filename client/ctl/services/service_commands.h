// SPDX-License-Identifier: Apache-2.0
// The commands on services. A service is made of channels, and the daemon knows no more of it: its servers publish how
// long their requests took, in the metadata of a share each.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

#include "client/ctl/commands.h"

namespace arraybridge::ctl {

// Prints each service with the sums of its servers, and the latency of the slowest one.
Status ListServices(Connection& connection, const Options& options, std::ostream& out);

// Prints a service, each of its servers and each of its callers. NOT_FOUND: no server and no caller has it open.
Status ShowService(Connection& connection, const Options& options, const std::string& name, std::ostream& out);

// The name that a user may have meant: of the service that the channel belongs to, if `lister` lists services,
// otherwise of the channel.
std::string NameToShow(const std::string& channel, std::string_view lister);

}  // namespace arraybridge::ctl
