// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a share are, as ls, show and explain say it.
#pragma once

#include <string>

#include "arraybridge/v1/broker.pb.h"
#include "client/ctl/connection.h"
#include "client/ctl/output/table.h"

namespace arraybridge::ctl {

// "host" or "device" memory, or "disk": in a file alone.
std::string ResidencyOf(const v1::Share& share);
// Adds rows with the residency and what file the share has. A broker that does not answer leaves out the file.
void AddResidency(Table& table, Connection& connection, const v1::Share& share);
// Why sessions are offered the kind of this share's handle.
std::string WhyOffered(const v1::Handle& handle);

}  // namespace arraybridge::ctl
