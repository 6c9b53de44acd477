// SPDX-License-Identifier: Apache-2.0
// doctor examines what this host, this process and the broker can share. Each Finding is one line and names its remedy.
#pragma once

#include <string>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "client/ctl/output/finding.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// Examines the host, the broker's socket and the lifeline socket beside it, without a broker. `socket`: the path of the
// broker's socket, empty if unknown.
std::vector<Finding> ExamineHost(const std::string& socket);
// Examines the GPUs that this process sees, independent of those that a broker serves. `which`: auto (the system's
// driver), none, or a library.
std::vector<Finding> ExamineDriver(const std::string& which);
// Examines these frameworks of PythonProgram(), or all if none is named, and the package that it imports.
std::vector<Finding> ExaminePython(const std::vector<std::string>& frameworks);
// Examines the answer of the broker, or the error instead of an answer. `address`: socket or URI of the broker, empty
// if unknown.
std::vector<Finding> ExamineBroker(const Result<v1::GetServerInfoResponse>& info, const std::string& address);

// Examines whether the broker survives the kill of its daemon. Part of ExamineBroker.
std::vector<Finding> ExamineLife(const v1::GetServerInfoResponse& info);

// The remedy for a kind of handle that the hardware or the driver does not support.
std::string WhatToReadOfKinds();

}  // namespace arraybridge::ctl
