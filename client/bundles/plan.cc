// SPDX-License-Identifier: Apache-2.0
// The plan of a bundle: the arrays' places in the slab, and the bytes of the manifest.
#include <arraybridge/bundle.h>
#include <arraybridge/device.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "client/bundles/manifest.h"
#include "client/memory/layout.h"
#include "proto/boundary/text.h"

namespace arraybridge {
namespace {

using manifest::Entry;
using manifest::Header;
using manifest::Range;

// An array, and its place among the entries, which are sorted by name.
struct Planned {
  const BundleArray* array;
  uint64_t bytes;
  Entry entry;
};
using ByName = std::map<std::string_view, Planned>;

Status Invalid(const auto&... parts) { return InvalidArgument(parts...).Because("INVALID_BUNDLE"); }

Status CheckName(std::string_view name) {
  if (name.size() > Bundle::kNameBytesMax) {
    return Invalid("the name of an array in a bundle has ", name.size(), " bytes; it may have ", Bundle::kNameBytesMax);
  }
  if (!IsUtf8(name) || name.find('\0') != std::string_view::npos) {
    return Invalid("the name of an array in a bundle must be UTF-8 without NUL");
  }
  return Ok();
}

Result<Planned> Check(const BundleArray& array) {
  AB_RETURN_IF_ERROR(CheckName(array.name));
  const auto invalid = [&array](const auto&... parts) { return Invalid("array '", array.name, "' ", parts...); };
  if (!layout::CheckType(array.type).ok()) return invalid("has no type that DLPack has");
  if (array.shape.size() > layout::kRankMax) return invalid("has more than ", layout::kRankMax, " dimensions");
  const ArraySpec spec{array.type, {}, array.shape, {}, 0};
  const auto bytes = spec.compact_bytes();
  if (!bytes.ok()) return invalid("has an invalid shape: ", bytes.status().message());
  if (array.kind > ArrayKind::kLast) return invalid("has an unknown kind");
  Planned planned{&array, *bytes, {}};
  planned.entry.code = array.type.code;
  planned.entry.bits = array.type.bits;
  planned.entry.lanes = array.type.lanes;
  planned.entry.dimensions = static_cast<uint8_t>(array.shape.size());
  planned.entry.kind = static_cast<uint8_t>(array.kind);
  return planned;
}

// Gives each tied entry the place of the array whose bytes it has.
Status Tie(ByName& arrays) {
  for (auto& [name, planned] : arrays) {
    const BundleArray& array = *planned.array;
    if (array.tie.empty() || array.tie == name) continue;
    const auto found = arrays.find(array.tie);
    if (found == arrays.end())
      return Invalid("array '", name, "' is tied to '", array.tie, "', which the bundle lacks");
    const BundleArray& other = *found->second.array;
    if (!other.tie.empty() && other.tie != other.name) {
      return Invalid("array '", name, "' is tied to '", other.name, "', which is tied itself");
    }
    if (other.type != array.type || other.shape != array.shape) {
      return Invalid("array '", name, "' is tied to '", other.name, "', but type or shape differ");
    }
    planned.entry.tie = found->second.entry.tie;
    planned.entry.offset = found->second.entry.offset;
  }
  return Ok();
}

// Appends to the manifest; a range that begins beyond kBytesMax is noticed by its size.
Range Append(std::string& manifest, std::string_view text) {
  const Range range{static_cast<uint32_t>(manifest.size()), static_cast<uint32_t>(text.size())};
  manifest.append(text);
  return range;
}

}  // namespace

Result<BundlePlan> BundlePlan::For(std::span<const BundleArray> arrays, std::string_view fingerprint,
                                   std::string_view metadata) {
  ByName sorted;
  uint64_t needed = sizeof(Header) + fingerprint.size() + metadata.size();
  for (const BundleArray& array : arrays) {
    AB_ASSIGN_OR_RETURN(auto planned, Check(array));
    if (!sorted.emplace(array.name, planned).second)
      return Invalid("two arrays of the bundle are named '", array.name, "'");
    needed += sizeof(Entry) + array.name.size() + sizeof(int64_t) * array.shape.size();
  }
  if (needed >= manifest::kBytesMax)
    return Invalid("the manifest of the bundle needs ", needed, " bytes, and has 32 bits for them");
  uint64_t end = 0;
  uint32_t index = 0;
  for (auto& [name, planned] : sorted) {
    planned.entry.tie = index++;
    const std::string& tie = planned.array->tie;
    if (!tie.empty() && tie != name) continue;
    planned.entry.offset = end;
    if (planned.bytes > layout::kBytesMax - end - manifest::kAlignment)
      return Invalid("the bundle exceeds the address space");
    end = (end + planned.bytes + manifest::kAlignment - 1) / manifest::kAlignment * manifest::kAlignment;
  }
  AB_RETURN_IF_ERROR(Tie(sorted));
  Header header{};
  header.magic = manifest::kMagic;
  header.major = manifest::kMajor;
  header.minor = manifest::kMinor;
  header.entry_bytes = sizeof(Entry);
  header.entries = sorted.size();
  std::string manifest(sizeof header + sizeof(Entry) * sorted.size(), '\0');
  // Shapes first, which are aligned there.
  for (auto& [name, planned] : sorted) {
    const std::vector<int64_t>& shape = planned.array->shape;
    planned.entry.shape =
        Append(manifest, {reinterpret_cast<const char*>(shape.data()), sizeof(int64_t) * shape.size()}).offset;
  }
  for (auto& [name, planned] : sorted) planned.entry.name = Append(manifest, name);
  header.fingerprint = Append(manifest, fingerprint);
  header.metadata = Append(manifest, metadata);
  // A slab that begins at a page can be mapped at the addresses of another generation's.
  manifest.resize((manifest.size() + manifest::kPadding - 1) / manifest::kPadding * manifest::kPadding);
  std::memcpy(manifest.data(), &header, sizeof header);
  char* at = manifest.data() + sizeof header;
  for (const auto& [name, planned] : sorted) {
    std::memcpy(at, &planned.entry, sizeof planned.entry);
    at += sizeof planned.entry;
  }
  return BundlePlan(std::move(manifest), end);
}

std::vector<ArraySpec> BundlePlan::specs() const {
  const auto bytes = [](uint64_t count) {
    const DataType byte{1, 8, 1};
    return ArraySpec{byte, NameOf(byte), {static_cast<int64_t>(count)}, {}, 0};
  };
  return {bytes(manifest_.size()), bytes(bytes_)};
}

Result<Bundle> BundlePlan::WriteTo(const Placement& placement) const {
  const std::vector<View>& views = placement.views();
  AB_CHECK(views.size() == 2 && views[0].nbytes() == manifest_.size() && views[1].nbytes() == bytes_);
  if (views[0].device.type == kDeviceCpu) {
    std::memcpy(views[0].data, manifest_.data(), manifest_.size());
    return Bundle::Of(views);
  }
  if (manifest_.size() > Bundle::kGpuManifestBytesMax) {
    return Invalid("the manifest of the bundle has ", manifest_.size(), " bytes; on a GPU it may have ",
                   Bundle::kGpuManifestBytesMax);
  }
  View source = views[0];
  source.device = {};
  source.data = const_cast<char*>(manifest_.data());  // only read
  AB_RETURN_IF_ERROR(CopyToGpus({&source, 1}, {&views[0], 1}));
  return Bundle::Of(views);
}

}  // namespace arraybridge
