// What this host, this process and the broker can share, and why not the rest: one finding a line, with what
// mends it.
#pragma once

#include <string>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

enum class Health { kOk, kNote, kProblem };

struct Finding {
  std::string what;
  Health health = Health::kOk;
  std::string text;
  std::string mend;  // the command that helps, if there is one
};

// What can be seen without a broker: of the host, of the broker's socket and the lifeline's beside it. `socket`: the
// path of the first, empty if nobody knows.
std::vector<Finding> ExamineHost(const std::string& socket);
// What the broker says, or why it does not.
std::vector<Finding> ExamineBroker(const Result<v1::GetServerInfoResponse>& info);

}  // namespace arraybridge::ctl
