// SPDX-License-Identifier: Apache-2.0
// Common parts of the benchmark programs: a clock, medians, results as one JSON object per line, bare sockets as
// floors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::bench {

double NowMicroseconds();
double Median(std::vector<double> values);

// Runs each of `works` `rounds` times in turn, under the same load, and returns the median of each, in microseconds per
// `per_round` calls. Only figures that were measured side by side are compared.
std::vector<double> Interleaved(int rounds, int per_round, const std::vector<std::function<void()>>& works);

// "--name value" pairs. Exits with a message for any other argument.
class Arguments {
 public:
  Arguments(int argc, char** argv);
  std::string Text(const std::string& name) const;  // exits if absent
  std::string Text(const std::string& name, const std::string& otherwise) const;
  int Number(const std::string& name, int otherwise) const;

 private:
  std::map<std::string, std::string> values_;
};

// Prints one line of JSON.
void Print(const std::string& id, const std::map<std::string, double>& numbers);

// Exits with the message: a benchmark that cannot run prints the reason.
[[noreturn]] void Fail(const std::string& message);

// The value of a result; exits with its message if it is an error.
template <class T>
T Must(Result<T> result) {
  if (!result.ok()) Fail(result.status().ToString());
  return *std::move(result);
}
inline void Must(const Status& status) {
  if (!status.ok()) Fail(status.ToString());
}

// A bare SEQPACKET connection: the floor of every round trip.
class Echo {
 public:
  explicit Echo(const std::string& path);
  // Sends `up` bytes and waits for an answer of `down` bytes.
  void PingPong(size_t up, size_t down);

 private:
  UniqueFd socket_;
  std::vector<char> buffer_;
};

}  // namespace arraybridge::bench
