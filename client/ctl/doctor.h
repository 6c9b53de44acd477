// What this host, this process and the broker can share, and why not the rest: one finding a line.
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
};

// What can be seen without a broker.
std::vector<Finding> ExamineHost();
// What the broker says, or why it does not.
std::vector<Finding> ExamineBroker(const Result<v1::GetServerInfoResponse>& info);

}  // namespace arraybridge::ctl
