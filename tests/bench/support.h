// What every benchmark program needs: a clock, medians, results as one JSON object a line, bare sockets as floors.
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

// Runs each of `works` `rounds` times in turn, so that all see the same weather, and gives each one's median, in
// microseconds per `per_round` calls: what is compared was measured side by side.
std::vector<double> Interleaved(int rounds, int per_round, const std::vector<std::function<void()>>& works);

// "--name value" pairs. Exits with a message on anything else.
class Arguments {
 public:
  Arguments(int argc, char** argv);
  std::string Text(const std::string& name) const;  // exits if absent
  std::string Text(const std::string& name, const std::string& otherwise) const;
  int Number(const std::string& name, int otherwise) const;

 private:
  std::map<std::string, std::string> values_;
};

// One line of JSON on stdout.
void Print(const std::string& id, const std::map<std::string, double>& numbers);

// Exits with the message: a benchmark that cannot run says why.
[[noreturn]] void Fail(const std::string& message);

// What a call gave; a benchmark in which one fails says why and exits.
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
