// SPDX-License-Identifier: Apache-2.0
// Encoding requests.
#include "client/wire/codec_wire.h"

namespace arraybridge::codec {
namespace {

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
  wire::ClientCapabilities said{.boot_id = capabilities.boot_id,
                                .pid_namespace = capabilities.pid_namespace,
                                .gpu_uuids = {capabilities.gpu_uuids.begin(), capabilities.gpu_uuids.end()},
                                .cuda_driver_version = capabilities.cuda_driver_version,
                                .shm_device = capabilities.shm_device,
                                .wsl = capabilities.wsl,
                                .tegra = capabilities.tegra};
  for (const HandleKind kind : capabilities.kinds) said.kinds.push_back(static_cast<wire::HandleKind>(kind));
  return said;
}

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

std::string Encode(const OpenSession& request) {
  return wire::Encode(wire::OpenSessionRequest{.protocol_min = kProtocolVersion,
                                               .protocol_max = kProtocolVersion,
                                               .client = request.client,
                                               .capabilities = CapabilitiesOf(request.capabilities),
                                               .process_id = request.process_id,
                                               .token = request.token,
                                               .resumes = true});
}

std::string Encode(const Allocate& request) {
  return wire::Encode(
      wire::AllocateRequest{.namespace_ = request.ns,
                            .device = wire::Device{.type = request.device.type, .uuid = request.device.uuid},
                            .size = request.size,
                            .timeout_ms = request.timeout_ms});
}

std::string Encode(const Publish& request) {
  const std::string specs = wire::Encode(SpecsOf(request.arrays));
  wire::PublishRequest message{.namespace_ = request.ns,
                               .name = request.name,
                               .arena = request.arena,
                               .arena_generation = request.arena_generation,
                               .offset = request.offset,
                               .size = request.size,
                               .specs = specs,
                               .replace = request.replace,
                               .sealed = request.sealed,
                               .structure = request.structure,
                               .metadata = request.metadata,
                               .channel = request.channel,
                               .timeout_ms = request.timeout_ms,
                               .lifetime_ms = request.lifetime_ms,
                               .note = request.note,
                               .seen_notice = request.seen_notice};
  const Source& source = request.source;
  if (source.lease != 0 || source.share != 0 || source.direct_channel != 0) {
    message.source = wire::Source{.lease = source.lease,
                                  .share = source.share,
                                  .direct_channel_number = source.direct_channel,
                                  .direct_channel_bit = source.bit};
  }
  if (!request.fence.done()) {
    message.fence = wire::Fence{.kind = wire::Fence::Kind::kEvent, .opaque = request.fence.event};
  }
  return wire::Encode(message);
}

uint64_t SpecBytes(std::span<const PublishedArray> arrays) { return wire::SizeOf(SpecsOf(arrays)); }

std::string Encode(const Release& request) {
  wire::ReleaseRequest message{.leases = request.leases,
                               .arenas = request.arenas,
                               .unmapped = request.unmapped,
                               .hazards_cleared = request.hazards_cleared,
                               .done = request.done,
                               .lost = request.lost,
                               .direct_channels = request.direct_channels};
  if (request.capabilities) message.capabilities = CapabilitiesOf(*request.capabilities);
  for (const auto& [share, note] : request.notes) message.notes.push_back({.share = share, .note = note});
  return wire::Encode(message);
}

std::string EncodeMapped(uint64_t arena) { return wire::Encode(wire::MappedRequest{.arena = arena}); }

std::string EncodeBrowse(std::string_view ns, BrowsePart part) {
  return wire::Encode(wire::BrowseRequest{.namespace_ = ns, .part = static_cast<wire::BrowseRequest::Part>(part)});
}

std::string EncodeHazardPageMapped(std::string_view ns) {
  return wire::Encode(wire::MappedRequest{.hazard_page_of = ns});
}

std::string EncodeQueueMapped() { return wire::Encode(wire::MappedRequest{.queue = true}); }

std::string EncodeAcquire(std::string_view ns, std::span<const ShareRef> shares, uint64_t timeout_ms, bool final_only,
                          std::string_view note, uint64_t fence_timeout_ms) {
  return wire::Encode(wire::AcquireRequest{.namespace_ = ns,
                                           .shares = RefsOf(shares),
                                           .timeout_ms = timeout_ms,
                                           .final_only = final_only,
                                           .note = note,
                                           .fence_timeout_ms = fence_timeout_ms});
}

std::string EncodeOpenChannel(std::string_view ns, std::string_view name, Channel::Role role,
                              const ChannelOptions& options) {
  return wire::Encode(wire::OpenChannelRequest{
      .namespace_ = ns,
      .name = name,
      .role = static_cast<wire::OpenChannelRequest::Role>(role),
      .capacity = options.capacity,
      .mode = static_cast<wire::ChannelMode>(options.mode),
      .drop_oldest =
          options.on_slow == OnSlow::kAsIs ? std::nullopt : std::optional(options.on_slow == OnSlow::kDropOldest),
      .replay = options.replay});
}

std::string EncodeDrainChannel(std::string_view ns, std::string_view name, bool remove) {
  return wire::Encode(wire::WithdrawRequest{.namespace_ = ns, .channel = name, .remove = remove});
}

std::string EncodeCloseChannel(uint64_t channel, bool complete) {
  return wire::Encode(wire::CloseChannelRequest{.channel = channel, .abandoned = !complete});
}

std::string EncodeReceive(uint64_t channel, uint64_t timeout_ms, uint64_t seen_notice, bool revoke) {
  return wire::Encode(
      wire::ReceiveRequest{.channel = channel, .timeout_ms = timeout_ms, .seen_notice = seen_notice, .revoke = revoke});
}

std::string EncodeDirectMapped(uint64_t channel, uint64_t number) {
  return wire::Encode(wire::MappedRequest{.direct_channel_of = channel, .direct_channel_number = number});
}

std::string EncodeBrowseDirect(uint64_t channel) {
  return wire::Encode(wire::BrowseRequest{.part = wire::BrowseRequest::Part::kDirectChannel, .channel = channel});
}

std::string EncodeDescription(std::span<const PublishedArray> arrays, std::string_view structure,
                              std::string_view metadata) {
  const std::string specs = wire::Encode(SpecsOf(arrays));
  return wire::Encode(wire::Share{.specs = specs, .structure = structure, .metadata = metadata});
}

std::string EncodeExport(uint64_t arena, uint64_t generation, uint64_t direct_channel_of) {
  return wire::Encode(
      wire::ExportRequest{.arena = arena, .arena_generation = generation, .direct_channel_of = direct_channel_of});
}

std::string EncodeWithdraw(std::string_view ns, std::span<const ShareRef> shares) {
  return wire::Encode(wire::WithdrawRequest{.namespace_ = ns, .shares = RefsOf(shares)});
}

std::string EncodeList(std::string_view ns, std::string_view name_prefix, std::string_view page_token) {
  return wire::Encode(wire::ListRequest{.namespace_ = ns, .name_prefix = name_prefix, .page_token = page_token});
}

}  // namespace arraybridge::codec
