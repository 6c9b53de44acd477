// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/support.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace arraybridge::bench {

double NowMicroseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<double> Interleaved(int rounds, int per_round, const std::vector<std::function<void()>>& works) {
  std::vector<std::vector<double>> times(works.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < works.size(); ++i) {
      for (int call = 0; call < per_round; ++call) {
        const double start = NowMicroseconds();
        works[i]();
        times[i].push_back(NowMicroseconds() - start);
      }
    }
  }
  std::vector<double> medians;
  for (auto& each : times) medians.push_back(Median(std::move(each)));
  return medians;
}

Arguments::Arguments(int argc, char** argv) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name.rfind("--", 0) != 0 || i + 1 >= argc) Fail("expected --name value, got " + name);
    values_[name.substr(2)] = argv[i + 1];
  }
}

std::string Arguments::Text(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) Fail("missing --" + name);
  return found->second;
}

std::string Arguments::Text(const std::string& name, const std::string& otherwise) const {
  const auto found = values_.find(name);
  return found == values_.end() ? otherwise : found->second;
}

int Arguments::Number(const std::string& name, int otherwise) const {
  const auto found = values_.find(name);
  return found == values_.end() ? otherwise : std::atoi(found->second.c_str());
}

void Print(const std::string& id, const std::map<std::string, double>& numbers) {
  std::printf("{\"id\": \"%s\"", id.c_str());
  for (const auto& [name, value] : numbers) std::printf(", \"%s\": %.4f", name.c_str(), value);
  std::printf("}\n");
  std::fflush(stdout);
}

void Fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

Echo::Echo(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)), buffer_(65536) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) Fail("socket path is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    Fail("cannot connect to echo");
}

void Echo::PingPong(size_t up, size_t down) {
  const auto size = static_cast<uint32_t>(down);
  std::memcpy(buffer_.data(), &size, sizeof size);
  if (::send(socket_.get(), buffer_.data(), std::max(up, sizeof size), MSG_NOSIGNAL) < 0) Fail("echo: send failed");
  if (::recv(socket_.get(), buffer_.data(), buffer_.size(), 0) <= 0) Fail("echo: no answer");
}

}  // namespace arraybridge::bench
