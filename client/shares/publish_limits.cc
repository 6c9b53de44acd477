// SPDX-License-Identifier: Apache-2.0
#include "client/shares/publish_limits.h"

#include <vector>

#include "client/arenas/carver.h"
#include "client/wire/codec.h"

namespace arraybridge {
namespace {

// An upper bound of the numbers and tags of an ArraySpec, without its name and its shape.
constexpr uint64_t kSpecBytesMost = 64;
constexpr uint64_t kExtentBytesMost = 10;

uint64_t SpecBytesMost(std::span<const View> arrays) {
  uint64_t most = 0;
  for (const View& array : arrays) {
    most += kSpecBytesMost + array.dtype.size() + kExtentBytesMost * array.shape.size();
  }
  return most;
}

uint64_t SpecBytes(std::span<const View> arrays) {
  std::vector<codec::PublishedArray> published;
  published.reserve(arrays.size());
  uint64_t offset = 0;
  for (const View& array : arrays) {
    codec::PublishedArray& its = published.emplace_back();
    its.spec.type = array.type;
    its.spec.dtype = array.dtype.empty() ? NameOf(array.type) : array.dtype;
    its.spec.shape = array.shape;
    its.size = array.nbytes();
    if (its.size == 0) continue;
    its.spec.offset = offset;
    offset += Carver::Granules(its.size);
  }
  return codec::SpecBytes(published);
}

}  // namespace

Status CheckPublish(const ShareLimits& limits, std::string_view ns, std::span<const View> arrays,
                    const Broker::PublishOptions& options) {
  ShareSizes share;
  share.namespace_bytes = ns.size();
  share.name_bytes = options.name.size();
  share.arrays = arrays.size();
  share.structure_bytes = options.structure.size();
  share.metadata_bytes = options.metadata.size();
  share.spec_bytes = SpecBytesMost(arrays);
  // The exact size is computed only if the upper bound exceeds a limit.
  if (!CheckShare(limits, share).ok()) {
    share.spec_bytes = SpecBytes(arrays);
    AB_RETURN_IF_ERROR(CheckShare(limits, share));
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    AB_RETURN_IF_ERROR(CheckText("the name of a dtype", arrays[i].dtype));
    AB_RETURN_IF_ERROR(CheckRank(limits, arrays[i].shape.size(), i));
    AB_RETURN_IF_ERROR(CheckElement(arrays[i].type.code, arrays[i].type.bits, arrays[i].type.lanes, i));
  }
  return Ok();
}

}  // namespace arraybridge
