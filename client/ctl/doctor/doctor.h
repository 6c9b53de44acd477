// What this host, this process and the broker can share, and why not the rest: one finding a line, with what
// mends it.
#pragma once

#include <string>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "client/ctl/output/finding.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// What can be seen without a broker: of the host, of the broker's socket and the lifeline's beside it. `socket`: the
// path of the first, empty if nobody knows.
std::vector<Finding> ExamineHost(const std::string& socket);
// What this process sees of the GPUs, whatever a broker serves. `which`: auto, the system's driver; none; or a library.
std::vector<Finding> ExamineDriver(const std::string& which);
// What the broker says, or why it does not. `address`: its socket or its URI, empty if nobody knows.
std::vector<Finding> ExamineBroker(const Result<v1::GetServerInfoResponse>& info, const std::string& address);

// Of a kind of handle that hardware or driver do not have.
std::string WhatToReadOfKinds();

}  // namespace arraybridge::ctl
