// CDI (https://github.com/cncf-tags/container-device-interface) is how an engine is told what a container gets: here
// the directory of a broker's sockets, and where it is then.
#pragma once

#include <iosfwd>

#include "client/ctl/commands.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// Prints a CDI file for the broker that the options name: to be put into /etc/cdi. Always JSON, whatever form was asked
// for. INVALID_ARGUMENT: it is on another host.
Status PrintCdi(const Options& options, std::ostream& out);

}  // namespace arraybridge::ctl
