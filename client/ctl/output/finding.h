// SPDX-License-Identifier: Apache-2.0
// A Finding is one line of doctor: whether host, process and broker can share memory in one respect, and the remedy.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace arraybridge::ctl {

enum class Health { kOk, kNote, kProblem };
inline constexpr std::array<std::string_view, 3> kHealthNames = {"ok", "note", "problem"};

struct Finding {
  std::string what;
  Health health = Health::kOk;
  std::string text;
  std::string mend;  // a command that helps, or else what to read; empty: nothing is wrong
};

}  // namespace arraybridge::ctl
