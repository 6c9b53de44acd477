// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/devices.h"

#include <algorithm>
#include <array>
#include <utility>

#include "daemon/config/quantity.h"

namespace arraybridge::daemon {
namespace {

constexpr std::string_view kCuda = "cuda:";

bool IsHexDigit(char letter) { return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f'); }

Status CheckWord(std::string_view word) {
  if (word == "all" || word == "host" || IsOrdinal(word)) return Ok();
  if (word.starts_with(kCuda) && IsGpuUuid(word.substr(kCuda.size()))) return Ok();
  return InvalidArgument("'", word, "' is neither all nor host nor cuda:UUID (", kCuda, kGpuUuidForm,
                         "; nvidia-smi -L lists them)");
}

}  // namespace

bool IsGpuUuid(std::string_view text) {
  constexpr size_t kPrefixSize = 4;
  if (text.size() != kGpuUuidForm.size() || (!text.starts_with("GPU-") && !text.starts_with("MIG-"))) return false;
  for (size_t at = kPrefixSize; at < text.size(); ++at) {
    if (kGpuUuidForm[at] == '-' ? text[at] != '-' : !IsHexDigit(text[at])) return false;
  }
  return true;
}

bool IsOrdinal(std::string_view device) {
  constexpr uint64_t kOrdinalMax = 1023;
  if (!device.starts_with(kCuda)) return false;
  const auto number = ReadNumber(device.substr(kCuda.size()));
  // Only the canonical spelling is accepted because names are compared as texts.
  return number.ok() && *number <= kOrdinalMax && device.substr(kCuda.size()) == std::to_string(*number);
}

Result<std::vector<std::string>> ReadDevices(std::string_view text) {
  std::vector<std::string> devices;
  for (const std::string_view word : SplitList(text)) {
    AB_RETURN_IF_ERROR(CheckWord(word));
    if (std::ranges::find(devices, word) != devices.end()) return InvalidArgument("'", word, "' is listed twice");
    devices.emplace_back(word);
  }
  if (devices.size() > 1 && std::ranges::find(devices, "all") != devices.end()) {
    return InvalidArgument("'all' must be the only device");
  }
  return devices;
}

Result<uint64_t> ReadCapacityPercent(std::string_view text) {
  AB_ASSIGN_OR_RETURN(const auto read, ReadBytesOrPercent(text));
  const auto* percent = std::get_if<Percent>(&read);
  if (percent == nullptr || percent->value == 0)
    return InvalidArgument("'", text, "' is not a percentage from 1% to 100%");
  return uint64_t{percent->value};
}

Result<std::vector<HandleKind>> ReadGpuKinds(std::string_view text) {
  std::vector<HandleKind> kinds;
  for (const std::string_view word : SplitList(text)) {
    constexpr std::array kAll = {HandleKind::kCudaVmm, HandleKind::kCudaIpc};
    const auto* const kind = std::ranges::find(kAll, word, NameOf);
    if (kind == kAll.end()) return InvalidArgument("'", word, "' is neither cuda_vmm nor cuda_ipc");
    if (std::ranges::find(kinds, *kind) != kinds.end()) return InvalidArgument("'", word, "' is listed twice");
    kinds.push_back(*kind);
  }
  return kinds;
}

bool ServesHostMemory(const Config& config) {
  return std::ranges::any_of(config.devices, [](const auto& device) { return device == "all" || device == "host"; });
}

Status CheckDevices(const Config& config) {
  if (config.devices.front() == "all") return Ok();
  const auto names_gpu = [](const std::string& device) { return device.starts_with(kCuda); };
  const auto gpu = std::ranges::find_if(config.devices, names_gpu);
  if (config.memory_backend == "host" && gpu != config.devices.end()) {
    return InvalidArgument("device ", *gpu, " is not served with memory.backend (--backend) host");
  }
  if (config.memory_backend == "cuda" && gpu == config.devices.end()) {
    return InvalidArgument("memory.backend (--backend) cuda needs a GPU, and memory.devices lists none");
  }
  return Ok();
}

}  // namespace arraybridge::daemon
