#include "daemon/config/gpu_table.h"

#include <algorithm>
#include <array>

#include "daemon/config/quantity.h"

namespace arraybridge {
namespace {

constexpr std::string_view kPrefix = "memory.";

}  // namespace

const GpuSetting* FindGpuSetting(std::string_view leaf) {
  static const std::array<GpuSetting, 2> settings = {{
      {"capacity", false, [](auto text, GpuDraft& d) { return Store(ReadCapacityPercent(text), &d.capacity_percent); }},
      {"kinds", true, [](auto text, GpuDraft& d) { return Store(ReadGpuKinds(text), &d.kinds); }},
  }};
  const auto* const found = std::ranges::find(settings, leaf, &GpuSetting::leaf);
  return found == settings.end() ? nullptr : &*found;
}

std::optional<std::pair<std::string, std::string>> SplitGpuKey(const std::string& key) {
  const size_t dot = key.rfind('.');
  if (!key.starts_with(kPrefix) || dot < kPrefix.size()) return std::nullopt;
  std::string uuid = key.substr(kPrefix.size(), dot - kPrefix.size());
  if (!uuid.starts_with("GPU-") && !uuid.starts_with("MIG-")) return std::nullopt;
  return std::pair{std::move(uuid), key.substr(dot + 1)};
}

Result<uint64_t> ReadCapacityPercent(std::string_view text) {
  const auto read = ReadBytesOrPercent(text);
  if (!read.ok()) return read.status();
  const auto* percent = std::get_if<Percent>(&*read);
  if (percent == nullptr || percent->value == 0) return InvalidArgument("'", text, "' is not 1% to 100%");
  return uint64_t{percent->value};
}

Result<std::vector<HandleKind>> ReadGpuKinds(std::string_view text) {
  std::vector<HandleKind> kinds;
  for (const std::string_view word : SplitList(text)) {
    const auto is_named = [word](HandleKind kind) { return NameOf(kind) == word; };
    constexpr std::array<HandleKind, 2> kAll = {HandleKind::kCudaVmm, HandleKind::kCudaIpc};
    const auto* const kind = std::ranges::find_if(kAll, is_named);
    if (kind == kAll.end()) return InvalidArgument("'", word, "' is neither cuda_vmm nor cuda_ipc");
    if (std::ranges::find(kinds, *kind) != kinds.end()) return InvalidArgument("'", word, "' stands there twice");
    kinds.push_back(*kind);
  }
  return kinds;
}

}  // namespace arraybridge
