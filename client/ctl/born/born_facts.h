// SPDX-License-Identifier: Apache-2.0
// The arrays that frameworks made in broker memory, as their sessions tell of them:
// columns of `ls` and findings of doctor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "client/ctl/connection.h"
#include "client/ctl/output/finding.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

uint64_t BornBytes(const v1::SessionInfo& session);
// "numpy 1.5 GiB, torch 20 MiB"; "" if nothing was born.
std::string BornText(const v1::SessionInfo& session);
// "12 no_room, 3 refused"; "" if every array found memory.
std::string MissedText(const v1::SessionInfo& session);

// Nothing if no session that this user sees has born arrays: one finding on all of them, and one on each of the
// sessions whose arrays most often found no memory.
std::vector<Finding> ExamineBorn(std::vector<v1::SessionInfo> sessions);
// Asks the broker for its sessions. Nothing if it does not tell: it drains, or this user may not ask.
std::vector<Finding> ExamineBorn(Connection& connection);

}  // namespace arraybridge::ctl
