// SPDX-License-Identifier: Apache-2.0
// A Record is the output of experiments: JSON objects on stdout, one per line, each written at once, so that lines of
// several processes do not mix.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/boundary/cuda/driver_abi.h"

namespace arraybridge::experiments {

// A JSON string with its quotes; bytes outside of text become '?'.
std::string Quoted(std::string_view text);
void PrintLine(const std::string& line);

inline double MicrosecondsSince(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun).count();
}

// Writes a line for every driver call of one process: {experiment, process, symbol, result, us}.
class Recorder {
 public:
  Recorder(std::string experiment, std::string process)
      : experiment_(std::move(experiment)), process_(std::move(process)) {}

  // Makes the call, writes its line, returns its result.
  template <class Function, class... Arguments>
  cuda::CUresult Call(const char* symbol, Function* function, Arguments... arguments) const {
    const auto begun = std::chrono::steady_clock::now();
    const cuda::CUresult result = function(arguments...);
    Write(symbol, result, MicrosecondsSince(begun));
    return result;
  }
  void Write(const std::string& symbol, cuda::CUresult result, double us) const;
  // p50 and p99 of many runs of one call. REQUIRES: `us` is not empty.
  void WriteMany(const std::string& symbol, uint64_t bytes, std::vector<double> us) const;

 private:
  const std::string experiment_;
  const std::string process_;
};

}  // namespace arraybridge::experiments
