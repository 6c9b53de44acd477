// The table [memory."GPU-<uuid>"] of the file: what may be said of one GPU, where it is other than what [memory.cuda]
// says of all.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// What was said of it.
struct GpuDraft {
  std::optional<uint64_t> capacity_percent;
  std::optional<std::vector<HandleKind>> kinds;

  GpuTerms Over(const GpuTerms& others) const {
    return {capacity_percent.value_or(others.capacity_percent), kinds.value_or(others.kinds)};
  }
};

struct GpuSetting {
  std::string_view leaf;  // "capacity" in [memory."GPU-<uuid>"]
  bool is_list = false;
  std::function<Status(std::string_view text, GpuDraft& draft)> read;
};
// Null: no such setting.
const GpuSetting* FindGpuSetting(std::string_view leaf);

// "memory.UUID.leaf" as UUID and leaf; nothing for other keys. That it looks like a GPU's is no promise that it is one.
std::optional<std::pair<std::string, std::string>> SplitGpuKey(const std::string& key);

// "1%" to "100%".
Result<uint64_t> ReadCapacityPercent(std::string_view text);
// Kinds of handle of GPU memory, each once, with commas between them.
Result<std::vector<HandleKind>> ReadGpuKinds(std::string_view text);

}  // namespace arraybridge
