// SPDX-License-Identifier: Apache-2.0
// CDI (https://github.com/cncf-tags/container-device-interface) is a file format that tells a container engine what a
// container gets. Here it gets the directory of a broker's sockets and the environment variable that names it.
#pragma once

#include <iosfwd>

#include "client/ctl/commands.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// Prints a CDI file, to be saved in /etc/cdi, for the broker that the options name. The output is always JSON, whatever
// --output says. INVALID_ARGUMENT: the broker is on another host.
Status PrintCdi(const Options& options, std::ostream& out);

}  // namespace arraybridge::ctl
