// SPDX-License-Identifier: Apache-2.0
// The findings of a Python: its frameworks, and the package that it imports. Python alone can import them.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "client/ctl/child.h"
#include "client/ctl/doctor/doctor.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::ctl {

std::vector<Finding> ExaminePython(const std::vector<std::string>& frameworks) {
  std::vector<std::string> words = {"findings"};
  words.insert(words.end(), frameworks.begin(), frameworks.end());
  const UniqueFd file(::memfd_create("findings", MFD_CLOEXEC));
  const auto ended = RunPython(words, file.get());
  std::vector<Finding> findings;
  std::ifstream lines(Concat("/proc/self/fd/", file.get()));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::array<std::string, 4> cells;  // what, health, finding, mend
    for (std::string& cell : cells) std::getline(fields, cell, '\t');
    const auto* const health = std::ranges::find(kHealthNames, cells[1]);
    if (health == kHealthNames.end()) continue;  // a line that a package has printed
    findings.push_back({cells[0], static_cast<Health>(health - kHealthNames.begin()), cells[2], cells[3]});
  }
  if (ended.ok() && *ended == 0) return findings;
  const std::string why = ended.ok() ? Concat("ended with exit status ", *ended) : ended.status().message();
  findings.push_back({"Python", Health::kProblem, Concat("has no findings: ", why),
                      Concat(PythonProgram(), " -m arraybridge findings prints the reason")});
  return findings;
}

}  // namespace arraybridge::ctl
