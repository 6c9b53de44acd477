// SPDX-License-Identifier: Apache-2.0
// Encoding requests.
#include "client/wire/codec.h"

namespace arraybridge::codec {
namespace {

wire::ArraySpec SpecOf(const PublishedArray& array) {
  return {.code = array.spec.type.code,
          .bits = array.spec.type.bits,
          .lanes = array.spec.type.lanes,
          .dtype = array.spec.dtype,
          .shape = array.spec.shape,
          .strides = array.spec.strides,
          .offset = array.spec.offset,
          .size = array.size};
}

wire::ArraySpecs SpecsOf(std::span<const PublishedArray> arrays) {
  wire::ArraySpecs specs;
  specs.arrays.reserve(arrays.size());
  for (const PublishedArray& array : arrays) specs.arrays.push_back(SpecOf(array));
  return specs;
}

}  // namespace

std::vector<wire::ShareRef> RefsOf(std::span<const ShareRef> shares) {
  std::vector<wire::ShareRef> refs;
  refs.reserve(shares.size());
  for (const ShareRef& share : shares) {
    wire::ShareRef& ref = refs.emplace_back();
    if (share.id != 0) ref.id = share.id;
    if (share.id == 0) ref.name = share.name;
    ref.generation = share.generation;
    ref.newer_than = share.newer_than;
  }
  return refs;
}

wire::ClientCapabilities CapabilitiesOf(const Capabilities& capabilities) {
  wire::ClientCapabilities message{.boot_id = capabilities.boot_id,
                                   .pid_namespace = capabilities.pid_namespace,
                                   .gpu_uuids = {capabilities.gpu_uuids.begin(), capabilities.gpu_uuids.end()},
                                   .cuda_driver_version = capabilities.cuda_driver_version,
                                   .shm_device = capabilities.shm_device,
                                   .wsl = capabilities.wsl,
                                   .tegra = capabilities.tegra};
  for (const HandleKind kind : capabilities.kinds) message.kinds.push_back(static_cast<wire::HandleKind>(kind));
  return message;
}

std::string Encode(const Publish& request) {
  wire::PublishRequest message = request.message;
  const std::string specs = wire::Encode(SpecsOf(request.arrays));
  message.specs = specs;
  if (!request.fence.done()) message.fence = wire::Fence{wire::Fence::Kind::kEvent, request.fence.event};
  return wire::Encode(message);
}

uint64_t SpecBytes(std::span<const PublishedArray> arrays) { return wire::SizeOf(SpecsOf(arrays)); }

std::string Encode(const Release& request) {
  wire::ReleaseRequest message = request;
  if (request.own_capabilities) message.capabilities = CapabilitiesOf(*request.own_capabilities);
  for (const auto& [share, note] : request.own_notes) message.notes.push_back({.share = share, .note = note});
  return wire::Encode(message);
}

std::string EncodeDescription(std::span<const PublishedArray> arrays, std::string_view structure,
                              std::string_view metadata) {
  const std::string specs = wire::Encode(SpecsOf(arrays));
  return wire::Encode(wire::Share{.specs = specs, .structure = structure, .metadata = metadata});
}

}  // namespace arraybridge::codec
