// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/experiments/record.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "proto/boundary/result.h"

namespace arraybridge::experiments {
namespace {

std::string Fixed(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

}  // namespace

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c >= ' ' && c <= '~' ? c : '?';
  }
  return quoted + '"';
}

void PrintLine(const std::string& line) {
  const std::string whole = line + "\n";
  for (size_t done = 0; done < whole.size();) {
    const ssize_t now = ::write(STDOUT_FILENO, whole.data() + done, whole.size() - done);
    if (now <= 0) return;
    done += static_cast<size_t>(now);
  }
}

void Recorder::Write(const std::string& symbol, cuda::CUresult result, double us) const {
  PrintLine(Concat("{\"experiment\": ", Quoted(experiment_), ", \"process\": ", Quoted(process_), ", \"symbol\": ",
                   Quoted(symbol), ", \"result\": ", static_cast<uint32_t>(result), ", \"us\": ", Fixed(us), "}"));
}

void Recorder::WriteMany(const std::string& symbol, uint64_t bytes, std::vector<double> us) const {
  std::sort(us.begin(), us.end());
  const size_t runs = us.size();
  PrintLine(Concat("{\"experiment\": ", Quoted(experiment_), ", \"process\": ", Quoted(process_),
                   ", \"symbol\": ", Quoted(symbol), ", \"bytes\": ", bytes, ", \"runs\": ", runs,
                   ", \"p50_us\": ", Fixed(us[runs / 2]), ", \"p99_us\": ", Fixed(us[(runs - 1) * 99 / 100]), "}"));
}

}  // namespace arraybridge::experiments
