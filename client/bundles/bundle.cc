// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/bundle.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
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
std::string Quoted(std::string_view name) { return Concat("'", FirstBytes(name, 200), "'"); }

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

// REQUIRES: CheckName.
std::string_view NameOf(const View& bytes, const Entry& entry) {
  return {static_cast<const char*>(bytes.data) + entry.name.offset, entry.name.bytes};
}

Status CheckName(const View& bytes, const Entry& entry) {
  if (entry.name.bytes > Bundle::kNameBytesMax || !IsIn(bytes, entry.name.offset, entry.name.bytes)) {
    return Malformed("a name lies outside it or is too long");
  }
  const std::string_view name = NameOf(bytes, entry);
  if (IsUtf8(name) && name.find('\0') == std::string_view::npos) return Ok();
  return Malformed("a name is not UTF-8 without NUL");
}

Status ReadShape(const View& bytes, const Entry& entry, std::vector<int64_t>* shape) {
  if (entry.dimensions > layout::kRankMax || !IsIn(bytes, entry.shape, sizeof(int64_t) * entry.dimensions)) {
    return Malformed("a shape lies outside it, or has more than ", layout::kRankMax, " dimensions");
  }
  shape->resize(entry.dimensions);
  // memcpy must not get the null pointer of an empty vector
  if (!shape->empty()) {
    std::memcpy(shape->data(), static_cast<const std::byte*>(bytes.data) + entry.shape,
                sizeof(int64_t) * shape->size());
  }
  return Ok();
}

// The bytes of an entry in the slab.
struct Span {
  uint64_t begin;
  uint64_t end;
  uint64_t entry;
};

// Empty for an entry without bytes of its own, or one that At refuses. `shape` is for use by this function.
Span SpanOf(const View& bytes, uint64_t slab_bytes, const Entry& entry, uint64_t index, std::vector<int64_t>* shape) {
  const Span none{0, 0, index};
  const DataType type{entry.code, entry.bits, entry.lanes};
  if (entry.tie != index || entry.slab != 0 || !layout::CheckType(type).ok()) return none;
  if (!ReadShape(bytes, entry, shape).ok()) return none;
  const auto elements = layout::Elements(*shape);
  if (!elements.ok()) return none;
  const auto count = layout::CompactBytes(*elements, type);
  if (!count.ok() || entry.offset > slab_bytes || *count > slab_bytes - entry.offset) return none;
  return {entry.offset, entry.offset + *count, index};
}

bool IsBytes(const View& view) {
  const bool is_reachable = view.device.type == kDeviceCpu || view.device.type == kDeviceCuda;
  return view.type == kByte && view.shape.size() == 1 && is_reachable && view.compact();
}

// The manifest in memory of this process, which no other process changes after it was checked.
Result<View> OwnCopy(const View& bytes) {
  const bool on_gpu = bytes.device.type != kDeviceCpu;
  const uint64_t most = on_gpu ? Bundle::kGpuManifestBytesMax : manifest::kBytesMax;
  if (bytes.nbytes() > most) {
    return Malformed("it has ", bytes.nbytes(), " bytes; ", on_gpu ? "on a GPU it" : "it", " may have ", most);
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
  // Nothing is copied of an array that is no manifest.
  if (views[0].device.type == kDeviceCpu && ReadAt<Header>(views[0], 0).magic != manifest::kMagic) {
    return refused("its first array is no manifest");
  }
  AB_ASSIGN_OR_RETURN(auto own, OwnCopy(views[0]));
  const View& bytes = own;
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
  Bundle bundle(std::move(views), std::move(own), header.entries, header.entry_bytes);
  AB_RETURN_IF_ERROR(bundle.CheckNames());
  AB_RETURN_IF_ERROR(bundle.CheckSpans());
  return bundle;
}

Status Bundle::CheckContent(std::string_view structure, std::span<const View> views) {
  const bool is_bundle = structure == kStructure && views.size() == 2 && views[0].device.type == kDeviceCpu;
  if (!is_bundle) return Ok();
  auto bundle = Of({views.begin(), views.end()});
  // Without a manifest it is a tree with a bundle's two keys.
  return !bundle.ok() && bundle.status().reason() == "MALFORMED_BUNDLE" ? bundle.status() : Ok();
}

// Checks what all entries have together. A reader's memory is bounded by that of the manifest, since no two entries use
// the same bytes of it, and Find finds every name.
Status Bundle::CheckNames() const {
  const auto header = ReadAt<Header>(manifest_, 0);
  uint64_t used = sizeof(Header) + size_ * entry_bytes_;
  for (const Range& range : {header.fingerprint, header.metadata}) {
    if (!IsIn(manifest_, range.offset, range.bytes)) return Malformed("its fingerprint or metadata lies outside it");
    used += range.bytes;
  }
  std::string_view before;
  for (uint64_t i = 0; i < size_; ++i) {
    const Entry entry = EntryAt(manifest_, i, entry_bytes_);
    AB_RETURN_IF_ERROR(CheckName(manifest_, entry));
    const std::string_view name = NameOf(manifest_, entry);
    if (i > 0 && name == before) return Malformed("two arrays are named ", Quoted(name));
    if (name < before) return Malformed("its names are not sorted: ", Quoted(name), " follows ", Quoted(before));
    before = name;
    used += name.size() + sizeof(int64_t) * entry.dimensions;
  }
  if (used <= manifest_.nbytes()) return Ok();
  return Malformed("names or shapes share bytes: together they need ", used, " of ", manifest_.nbytes());
}

// Arrays that share bytes are tied, so that a reader who copies the arrays copies at most the slab.
Status Bundle::CheckSpans() const {
  std::vector<Span> spans;
  spans.reserve(size_);
  std::vector<int64_t> shape;
  for (uint64_t i = 0; i < size_; ++i) {
    const Span span = SpanOf(manifest_, views_[1].nbytes(), EntryAt(manifest_, i, entry_bytes_), i, &shape);
    if (span.begin < span.end) spans.push_back(span);
  }
  // BundlePlan places arrays in the order of their names.
  if (!std::ranges::is_sorted(spans, {}, &Span::begin)) std::ranges::sort(spans, {}, &Span::begin);
  const auto shared =
      std::ranges::adjacent_find(spans, [](const Span& one, const Span& next) { return next.begin < one.end; });
  if (shared == spans.end()) return Ok();
  const auto name = [this](uint64_t index) {
    return Quoted(NameOf(manifest_, EntryAt(manifest_, index, entry_bytes_)));
  };
  return Malformed(name(shared->entry), " and ", name(std::next(shared)->entry), " share bytes and are not tied");
}

Bundle Bundle::Over(View slab) const {
  Bundle other(*this);
  other.views_[1] = std::move(slab);
  return other;
}

std::string Bundle::Text(uint32_t offset, uint32_t bytes) const {
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
    const int order = NameOf(manifest_, EntryAt(manifest_, middle, entry_bytes_)).compare(name);
    if (order == 0) return middle;
    (order < 0 ? low : high) = order < 0 ? middle + 1 : middle;
  }
  return NotFound("the bundle has no array ", Quoted(name)).Because("ARRAY_NOT_FOUND");
}

Result<std::string> Bundle::NameAt(uint64_t index) const {
  if (index >= size_) return Status(Code::kOutOfRange, Concat("the bundle has ", size_, " arrays, and no ", index));
  return std::string(NameOf(manifest_, EntryAt(manifest_, index, entry_bytes_)));
}

Result<Bundle::Array> Bundle::At(uint64_t index) const {
  AB_ASSIGN_OR_RETURN(auto name, NameAt(index));
  const View& bytes = manifest_;
  const View& slab = views_[1];
  const Entry entry = EntryAt(bytes, index, entry_bytes_);
  Array array{.name = std::move(name), .kind = {}, .tie = entry.tie, .view = {}};
  const auto broken = [&array](const auto&... parts) { return Malformed(Quoted(array.name), " ", parts...); };
  if (entry.kind > static_cast<uint8_t>(ArrayKind::kLast)) return broken("has the unknown kind ", entry.kind);
  array.kind = ArrayKind{entry.kind};
  if (entry.slab != 0) return broken("lies in the unknown slab ", entry.slab);
  const DataType type{entry.code, entry.bits, entry.lanes};
  if (!layout::CheckType(type).ok()) return broken("has no type of DLPack");
  ArraySpec spec{type, arraybridge::NameOf(type), {}, {}, entry.offset};
  AB_RETURN_IF_ERROR(ReadShape(bytes, entry, &spec.shape));
  if (const Status inside = spec.CheckInside(slab.nbytes()); !inside.ok())
    return broken("does not fit: ", inside.message());
  if (entry.offset % manifest::kAlignment != 0) return broken("is not aligned to ", manifest::kAlignment, " bytes");
  if (entry.tie != index) {
    if (entry.tie >= size_) return broken("is tied to an array that is not there");
    const Entry other = EntryAt(bytes, entry.tie, entry_bytes_);
    if (other.tie != entry.tie || other.offset != entry.offset) return broken("is tied to an array with other bytes");
    const bool alike = other.code == entry.code && other.bits == entry.bits && other.lanes == entry.lanes;
    std::vector<int64_t> shape;
    if (!alike || !ReadShape(bytes, other, &shape).ok() || shape != spec.shape)
      return broken("is tied to an array of another type or shape");
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
