// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/experiments/peer_program.h"

#include <dlfcn.h>
#include <sys/prctl.h>

#include <cstdlib>
#include <sstream>

#include "tests/gpu/experiments/message.h"

namespace arraybridge::experiments {
namespace {

using cuda::CUresult;

constexpr int kDirector = 3;
constexpr auto kNoSuchVerb = static_cast<CUresult>(9999);

Reply Load(State& state, const Words&) {
  const auto begun = std::chrono::steady_clock::now();
  auto loaded = cuda::Driver::Load(state.driver_path);
  const auto result = loaded.ok() ? cuda::CUDA_SUCCESS : cuda::CUDA_ERROR_UNKNOWN;
  state.recorder.Write("cuInit", result, MicrosecondsSince(begun));
  if (!loaded.ok()) return {result, loaded.status().ToString()};
  state.driver = *loaded;
  return {result, std::to_string(state.driver.version)};
}

Reply Context(State& state, const Words& words) {
  CUresult result = state.Call("cuDevicePrimaryCtxRetain", state.driver.DevicePrimaryCtxRetain, &state.context,
                               static_cast<cuda::CUdevice>(words.Number(0)));
  if (result == cuda::CUDA_SUCCESS) result = state.Call("cuCtxSetCurrent", state.driver.CtxSetCurrent, state.context);
  if (result != cuda::CUDA_SUCCESS) return {result};
  return {state.Call("cuStreamCreate", state.driver.StreamCreate, &state.stream, cuda::kStreamNonBlocking)};
}

// True if the primary context of the first device exists.
Reply Active(State& state, const Words&) {
  unsigned int flags = 0;
  int active = -1;
  const CUresult result =
      state.Call("cuDevicePrimaryCtxGetState", state.driver.DevicePrimaryCtxGetState, 0, &flags, &active);
  return {result, std::to_string(active)};
}

Reply Memory(State& state, const Words&) {
  size_t free = 0;
  size_t total = 0;
  const CUresult result = state.Call("cuMemGetInfo", state.driver.MemGetInfo, &free, &total);
  return {result, std::to_string(free)};
}

Reply Devices(State& state, const Words&) {
  int count = 0;
  const CUresult result = state.Call("cuDeviceGetCount", state.driver.DeviceGetCount, &count);
  return {result, std::to_string(count)};
}

// Applies one of the settings of a hardened unit; before load.
Reply Harden(State&, const Words& words) {
  constexpr int set_mdwe = 65;  // PR_SET_MDWE of Linux 6.3
  const int failed = words[0] == "mdwe" ? ::prctl(set_mdwe, 1, 0, 0, 0) : ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return {failed == 0 ? cuda::CUDA_SUCCESS : cuda::CUDA_ERROR_NOT_SUPPORTED};
}

Verbs AllVerbs() {
  Verbs verbs = {
      {"load", Load},
      {"context", Context},
      {"active", Active},
      {"memory", Memory},
      {"devices", Devices},
      {"harden", Harden},
      {"sync",
       [](State& state, const Words&) -> Reply {
         return {state.Call("cuStreamSynchronize", state.driver.StreamSynchronize, state.stream)};
       }},
  };
  AddBlockVerbs(verbs);
  AddLegacyVerbs(verbs);
  AddEventVerbs(verbs);
  AddKernelVerbs(verbs);
  AddBareVerbs(verbs);
  AddCaptureVerbs(verbs);
  AddProbeVerbs(verbs);
  AddHostVerbs(verbs);
  AddCostVerbs(verbs);
  return verbs;
}

}  // namespace

void* State::Exported(const char* name) const {
  void* const library = ::dlopen(driver_path.empty() ? "libcuda.so.1" : driver_path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : ::dlsym(library, name);
}

uint64_t Words::Number(size_t index, uint64_t otherwise) const {
  return index < words_.size() ? std::strtoull(words_[index].c_str(), nullptr, 0) : otherwise;
}

std::string Hexadecimal(const void* bytes, size_t size) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    const auto byte = static_cast<const uint8_t*>(bytes)[i];
    text += digits[byte >> 4];
    text += digits[byte & 0xF];
  }
  return text;
}

void FromHexadecimal(const std::string& text, void* bytes, size_t size) {
  for (size_t i = 0; i < size && 2 * i + 1 < text.size(); ++i) {
    static_cast<uint8_t*>(bytes)[i] = static_cast<uint8_t>(std::strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16));
  }
}

int RunPeer(const std::vector<std::string>& words) {
  if (words.size() != 3) return 64;
  const Verbs verbs = AllVerbs();
  State state(words[0], words[1], words[2]);
  while (auto message = Receive(kDirector)) {
    std::istringstream text(message->text);
    std::string verb;
    text >> verb;
    std::vector<std::string> rest;
    for (std::string word; text >> word;) rest.push_back(word);
    state.received = std::move(message->descriptor);
    const auto found = verbs.find(verb);
    const Reply reply =
        found == verbs.end() ? Reply{kNoSuchVerb, "no verb " + verb} : found->second(state, Words(rest));
    std::string answer = std::to_string(static_cast<uint32_t>(reply.result));
    if (!reply.value.empty()) answer += " " + reply.value;
    if (!Send(kDirector, answer, reply.descriptor)) break;
  }
  // Skips cleanup: an experiment ends like a killed process.
  std::_Exit(0);
}

}  // namespace arraybridge::experiments
