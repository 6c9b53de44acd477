// A Finding is one line of doctor: whether host, process and broker can share memory in one respect, and a remedy.
#pragma once

#include <string>

namespace arraybridge::ctl {

enum class Health { kOk, kNote, kProblem };

struct Finding {
  std::string what;
  Health health = Health::kOk;
  std::string text;
  std::string mend;  // the command that helps, or what to read where none does; empty: nothing is wrong
};

}  // namespace arraybridge::ctl
