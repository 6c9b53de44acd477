#include <arraybridge/bundle.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "client/bundles/manifest.h"
#include "client/memory/layout.h"
#include "proto/boundary/text.h"

namespace arraybridge {
namespace {

using manifest::Entry;
using manifest::Header;
using manifest::Range;

static_assert(std::endian::native == std::endian::little);

constexpr DataType kByte{1, 8, 1};

Status Malformed(const auto&... parts) {
  return InvalidArgument("the bundle's manifest is malformed: ", parts...).Because("MALFORMED_BUNDLE");
}

// An array's name, quoted in an error.
std::string Quoted(std::string_view name) { return Concat("'", name.substr(0, 200), "'"); }

template <class Value>
Value ReadAt(const View& bytes, uint64_t offset) {
  Value value;
  std::memcpy(&value, static_cast<const std::byte*>(bytes.data) + offset, sizeof value);
  return value;
}

Entry EntryAt(const View& bytes, uint64_t index, uint32_t entry_bytes) {
  return ReadAt<Entry>(bytes, sizeof(Header) + index * entry_bytes);
}

bool IsIn(const View& bytes, uint64_t offset, uint64_t count) {
  const uint64_t all = bytes.nbytes();
  return offset <= all && count <= all - offset;
}

Result<std::string_view> NameOf(const View& bytes, const Entry& entry) {
  if (entry.name.bytes == 0 || entry.name.bytes > Bundle::kNameBytesMax ||
      !IsIn(bytes, entry.name.offset, entry.name.bytes)) {
    return Malformed("a name lies outside it, is empty or is too long");
  }
  return std::string_view(static_cast<const char*>(bytes.data) + entry.name.offset, entry.name.bytes);
}

Result<std::vector<int64_t>> ShapeOf(const View& bytes, const Entry& entry) {
  if (entry.dimensions > layout::kRankMax || !IsIn(bytes, entry.shape, sizeof(int64_t) * entry.dimensions)) {
    return Malformed("a shape lies outside it, or has more than ", layout::kRankMax, " dimensions");
  }
  std::vector<int64_t> shape(entry.dimensions);
  // memcpy must not get the null pointer of an empty vector
  if (!shape.empty()) {
    std::memcpy(shape.data(), static_cast<const std::byte*>(bytes.data) + entry.shape, sizeof(int64_t) * shape.size());
  }
  return shape;
}

bool IsBytes(const View& view) {
  const bool is_reachable = view.device.type == kDeviceCpu || view.device.type == kDeviceCuda;
  return view.type == kByte && view.shape.size() == 1 && is_reachable && view.compact();
}

// The manifest in host memory.
Result<View> OnHost(const View& bytes) {
  if (bytes.device.type == kDeviceCpu) return bytes;
  if (bytes.nbytes() > Bundle::kGpuManifestBytesMax) {
    return Malformed("it has ", bytes.nbytes(), " bytes; on a GPU it may have ", Bundle::kGpuManifestBytesMax);
  }
  return CopyToHeap(bytes);
}

}  // namespace

Result<Bundle> Bundle::Of(std::vector<View> views) {
  const auto refused = [](const char* why) {
    return InvalidArgument("this share is no bundle: ", why).Because("NOT_A_BUNDLE");
  };
  if (views.size() != 2 || !IsBytes(views[0]) || !IsBytes(views[1])) return refused("it has not two arrays of bytes");
  if (views[0].device.type != views[1].device.type || views[0].device.id != views[1].device.id) {
    return refused("its two arrays lie on two devices");
  }
  if (!IsIn(views[0], 0, sizeof(Header))) return refused("its first array is too small for a manifest");
  auto on_host = OnHost(views[0]);
  if (!on_host.ok()) return on_host.status();
  const View& bytes = *on_host;
  const auto header = ReadAt<Header>(bytes, 0);
  if (header.magic != manifest::kMagic) return refused("its first array is no manifest");
  if (header.major != manifest::kMajor) {
    return Unimplemented("the bundle's manifest has version ", header.major, ".", header.minor, "; this client reads ",
                         manifest::kMajor, ".", manifest::kMinor)
        .Because("BUNDLE_VERSION");
  }
  if (header.entry_bytes < sizeof(Entry)) return Malformed("its entries have ", header.entry_bytes, " bytes");
  if (header.entries > (bytes.nbytes() - sizeof(Header)) / header.entry_bytes) {
    return Malformed(header.entries, " entries do not fit into it");
  }
  return Bundle(std::move(views), *std::move(on_host), header.entries, header.entry_bytes);
}

std::string Bundle::Text(uint32_t offset, uint32_t bytes) const {
  if (!IsIn(manifest_, offset, bytes)) return {};
  return {static_cast<const char*>(manifest_.data) + offset, bytes};
}

std::string Bundle::fingerprint() const {
  const Range range = ReadAt<Header>(manifest_, 0).fingerprint;
  return Text(range.offset, range.bytes);
}

uint64_t Bundle::metadata_bytes() const { return ReadAt<Header>(manifest_, 0).metadata.bytes; }

std::string Bundle::metadata() const {
  const Range range = ReadAt<Header>(manifest_, 0).metadata;
  return Text(range.offset, range.bytes);
}

Result<uint64_t> Bundle::Find(std::string_view name) const {
  for (uint64_t low = 0, high = size_; low < high;) {
    const uint64_t middle = low + (high - low) / 2;
    const auto found = NameOf(manifest_, EntryAt(manifest_, middle, entry_bytes_));
    if (!found.ok()) return found.status();
    const int order = found->compare(name);
    if (order == 0) return middle;
    (order < 0 ? low : high) = order < 0 ? middle + 1 : middle;
  }
  return NotFound("the bundle has no array ", Quoted(name)).Because("ARRAY_NOT_FOUND");
}

Result<std::string> Bundle::NameAt(uint64_t index) const {
  if (index >= size_) return Status(Code::kOutOfRange, Concat("the bundle has ", size_, " arrays, and no ", index));
  const auto found = NameOf(manifest_, EntryAt(manifest_, index, entry_bytes_));
  if (!found.ok()) return found.status();
  std::string name(*found);
  if (!IsUtf8(name)) return Malformed("a name is not UTF-8");
  return name;
}

Result<Bundle::Array> Bundle::At(uint64_t index) const {
  auto name = NameAt(index);
  if (!name.ok()) return name.status();
  const View& bytes = manifest_;
  const View& slab = views_[1];
  const Entry entry = EntryAt(bytes, index, entry_bytes_);
  Array array{.name = *std::move(name), .kind = {}, .tie = entry.tie, .view = {}};
  const auto broken = [&array](const auto&... parts) { return Malformed(Quoted(array.name), " ", parts...); };
  if (entry.kind > static_cast<uint8_t>(ArrayKind::kLast)) return broken("has the unknown kind ", entry.kind);
  array.kind = ArrayKind{entry.kind};
  if (entry.slab != 0) return broken("lies in the unknown slab ", entry.slab);
  const DataType type{entry.code, entry.bits, entry.lanes};
  if (!layout::CheckType(type).ok()) return broken("has no type of DLPack");
  auto shape = ShapeOf(bytes, entry);
  if (!shape.ok()) return shape.status();
  const ArraySpec spec{type, arraybridge::NameOf(type), *std::move(shape), {}, entry.offset};
  if (const Status inside = spec.CheckInside(slab.nbytes()); !inside.ok())
    return broken("does not fit: ", inside.message());
  if (entry.offset % manifest::kAlignment != 0) return broken("is not aligned to ", manifest::kAlignment, " bytes");
  if (entry.tie != index) {
    if (entry.tie >= size_) return broken("is tied to an array that is not there");
    const Entry other = EntryAt(bytes, entry.tie, entry_bytes_);
    if (other.tie != entry.tie || other.offset != entry.offset) return broken("is tied to an array with other bytes");
    const bool alike = other.code == entry.code && other.bits == entry.bits && other.lanes == entry.lanes;
    const auto others = ShapeOf(bytes, other);
    if (!alike || !others.ok() || *others != spec.shape) return broken("is tied to an array of another type or shape");
  }
  array.view = slab;
  array.view.type = type;
  array.view.dtype = spec.dtype;
  array.view.strides = CompactStrides(spec.shape);
  array.view.shape = spec.shape;
  const bool is_empty = array.view.elements() == 0;
  array.view.data = is_empty ? nullptr : static_cast<std::byte*>(slab.data) + entry.offset;
  return array;
}

}  // namespace arraybridge
