// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/config.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/boundary/cuda/driver_symbols.h"
#include "tests/simulated_cuda/call_table.h"

namespace arraybridge::simulated {
namespace {

[[noreturn]] void Refuse(const std::string& item, const char* why) {
  std::fprintf(stderr, "simulated_cuda: '%s': %s\n", item.c_str(), why);
  std::abort();
}

std::string Text() {
  if (const char* variable = std::getenv("SIMULATED_CUDA")) return variable;
  Dl_info library{};
  if (dladdr(reinterpret_cast<void*>(&Text), &library) == 0) return {};
  std::ifstream file(std::string(library.dli_fname) + ".conf");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

uint64_t Number(const std::string& text) {
  char* end = nullptr;
  const uint64_t value = std::strtoull(text.c_str(), &end, 0);
  if (text.empty() || *end != '\0') Refuse(text, "is not a number");
  return value;
}
int Int(const std::string& text) { return static_cast<int>(Number(text)); }

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool IsCall(const std::string& name) {
#define SIM_OURS(name, ...) "cu" #name,
#define SIM_NAME(base, ...) #base,
  static const std::set<std::string> kNames = {
      "*", AB_DRIVER_CALLS(SIM_OURS) SIM_GUEST_CALLS(SIM_NAME) SIM_KERNEL_CALLS(SIM_NAME)};
#undef SIM_NAME
#undef SIM_OURS
  return kNames.contains(name);
}

Fault ParseFault(const std::string& value) {
  const auto parts = Split(value, ':');
  if (parts.size() != 3) Refuse(value, "is not symbol:n:code");
  if (!IsCall(parts[0])) Refuse(parts[0], "is no call of this driver, without its version");
  Fault fault{.symbol = parts[0], .code = static_cast<uint32_t>(Number(parts[2]))};
  if (parts[1].starts_with("1/")) {
    fault.one_in = Number(parts[1].substr(2));
  } else if (parts[1] != "*") {
    fault.nth = static_cast<long>(Number(parts[1]));
  }
  return fault;
}

cuda::CUuuid ParseUuid(const std::string& digits) {
  if (digits.size() != 32) Refuse(digits, "is not 32 hexadecimal digits");
  cuda::CUuuid uuid{};
  for (size_t i = 0; i < 16; ++i) uuid.bytes[i] = static_cast<uint8_t>(Number("0x" + digits.substr(2 * i, 2)));
  return uuid;
}

void Apply(Config& config, const std::string& item) {
  const size_t equals = item.find('=');
  const std::string key = item.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : item.substr(equals + 1);
  const std::map<std::string, std::function<void()>> keys = {
      {"devices", [&] { config.devices = Int(value); }},
      {"memory", [&] { config.memory = Number(value); }},
      {"address_space", [&] { config.address_space = Number(value); }},
      {"version", [&] { config.version = Int(value); }},
      {"dir", [&] { config.directory = value; }},
      {"seed", [&] { config.seed = Number(value); }},
      {"report", [&] { config.report = value; }},
      {"fail", [&] { config.faults.push_back(ParseFault(value)); }},
      {"peers", [&] { config.peers = true; }},
      {"exclusive", [&] { config.exclusive = true; }},
      {"own", [&] { config.own = true; }},
      {"context_for_memory", [&] { config.context_for_memory = true; }},
      {"held", [&] { config.held = true; }},
      {"dead_events_pend", [&] { config.dead_events_pend = true; }},
      {"guest", [&] { config.guest = true; }},
      {"ledger", [&] { config.ledger = true; }},
      {"trace", [&] { config.trace = true; }},
      {"visible",
       [&] {
         for (const auto& part : Split(value, ',')) config.visible.push_back(Int(part));
       }},
      {"integrated",
       [&] {
         for (const auto& part : Split(value, ',')) config.integrated.insert(Int(part));
       }},
      {"one_memory",
       [&] {
         for (const auto& part : Split(value, ',')) config.one_memory.insert(Int(part));
       }},
      {"mig",
       [&] {
         for (const auto& part : Split(value, ',')) config.mig.insert(Int(part));
       }},
      {"off",
       [&] {
         for (const auto& part : Split(value, ',')) config.off.insert(static_cast<uint32_t>(Number(part)));
       }},
      {"uuid",
       [&] {
         const auto parts = Split(value, ':');
         if (parts.size() != 2) Refuse(value, "is not device:digits");
         config.uuids[Int(parts[0])] = ParseUuid(parts[1]);
       }},
  };
  const auto found = keys.find(key);
  if (found == keys.end()) Refuse(key, "unknown key");
  found->second();
}

}  // namespace

Config Config::Read() {
  Config config;
  bool visible_given = false;
  std::string text = Text();
  for (char& c : text) c = c == '\n' ? ';' : c;
  for (const auto& item : Split(text, ';')) {
    if (item.empty() || item[0] == '#') continue;
    visible_given = visible_given || item.starts_with("visible");
    Apply(config, item);
  }
  if (!visible_given) {
    for (int i = 0; i < config.devices; ++i) config.visible.push_back(i);
  }
  for (const int device : config.visible) {
    if (device < 0 || device >= config.devices) Refuse(std::to_string(device), "visible, but there is no such device");
  }
  if (config.directory.empty()) config.directory = "/dev/shm/simulated_cuda." + std::to_string(getuid());
  mkdir(config.directory.c_str(), 0700);
  return config;
}

cuda::CUuuid Config::Uuid(int physical) const {
  const auto given = uuids.find(physical);
  if (given != uuids.end()) return given->second;
  cuda::CUuuid uuid{};
  std::fill(std::begin(uuid.bytes), std::end(uuid.bytes), uint8_t{0x5A});
  uuid.bytes[15] = static_cast<uint8_t>(physical);
  return uuid;
}

}  // namespace arraybridge::simulated
