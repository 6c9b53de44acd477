#include "client/purpose.h"

#include <vector>

#include "client/codec.h"
#include "client/layout.h"

namespace arraybridge {
namespace {

// More than an ArraySpec's numbers and tags can take, beside its name and its shape.
constexpr uint64_t kSpecBytesMost = 64;
constexpr uint64_t kExtentBytesMost = 10;

uint64_t SpecBytesMost(std::span<const ArraySpec> specs) {
  uint64_t most = 0;
  for (const ArraySpec& spec : specs) most += kSpecBytesMost + spec.dtype.size() + kExtentBytesMost * spec.shape.size();
  return most;
}

uint64_t SpecBytes(std::span<const ArraySpec> specs, std::span<const uint64_t> offsets) {
  std::vector<codec::PublishedArray> arrays;
  arrays.reserve(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    codec::PublishedArray& array = arrays.emplace_back();
    array.spec.type = specs[i].type;
    array.spec.dtype = specs[i].dtype.empty() ? NameOf(specs[i].type) : specs[i].dtype;
    array.spec.shape = specs[i].shape;
    array.size = *specs[i].compact_bytes();
    array.spec.offset = array.size == 0 ? 0 : offsets[i];
  }
  return codec::SpecBytes(arrays);
}

}  // namespace

Status CheckPurpose(const ShareLimits& limits, std::string_view ns, std::span<const ArraySpec> specs,
                    std::span<const uint64_t> offsets, const Broker::PublishOptions& purpose) {
  ShareSizes share;
  share.namespace_bytes = ns.size();
  share.name_bytes = purpose.name.size();
  share.arrays = specs.size();
  share.structure_bytes = purpose.structure.size();
  share.metadata_bytes = purpose.metadata.size();
  share.spec_bytes = SpecBytesMost(specs);
  // Counted exactly only where it matters.
  if (!CheckShare(limits, share).ok()) {
    share.spec_bytes = SpecBytes(specs, offsets);
    AB_RETURN_IF_ERROR(CheckShare(limits, share));
  }
  for (size_t i = 0; i < specs.size(); ++i) AB_RETURN_IF_ERROR(CheckRank(limits, specs[i].shape.size(), i));
  return Ok();
}

}  // namespace arraybridge
