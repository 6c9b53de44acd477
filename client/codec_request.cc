// Requests.
#include "client/codec_wire.h"

namespace arraybridge::codec {
namespace {

void AddRefs(Writer& writer, uint32_t tag, std::span<const ShareRef> shares) {
  for (const ShareRef& ref : shares) {
    Writer entry(writer, tag);
    if (ref.id != 0) entry.add_uint64(2, ref.id);
    if (ref.id == 0) entry.add_string(1, ref.name);
    if (ref.generation != 0) entry.add_uint64(3, ref.generation);
  }
}

void AddNumbers(Writer& writer, uint32_t tag, const std::vector<uint64_t>& numbers) {
  if (!numbers.empty()) writer.add_packed_uint64(tag, numbers.begin(), numbers.end());
}

void AddText(Writer& writer, uint32_t tag, std::string_view text) {
  if (!text.empty()) writer.add_bytes(tag, text.data(), text.size());
}

void AddCapabilities(Writer& request, protozero::pbf_tag_type field, const Capabilities& capabilities) {
  Writer writer(request, field);
  std::vector<uint32_t> kinds;
  for (const HandleKind kind : capabilities.kinds) kinds.push_back(static_cast<uint32_t>(kind));
  if (!kinds.empty()) writer.add_packed_uint32(1, kinds.begin(), kinds.end());
  AddText(writer, 2, capabilities.boot_id);
  if (capabilities.pid_namespace != 0) writer.add_uint64(3, capabilities.pid_namespace);
  for (const std::string& uuid : capabilities.gpu_uuids) writer.add_string(4, uuid);
  if (capabilities.cuda_driver_version != 0) writer.add_uint32(5, capabilities.cuda_driver_version);
  if (capabilities.shm_device != 0) writer.add_uint64(6, capabilities.shm_device);
  if (capabilities.wsl) writer.add_bool(7, true);
  if (capabilities.tegra) writer.add_bool(8, true);
}

void AddArray(Writer& specs, const PublishedArray& array) {
  Writer writer(specs, 1);
  if (array.spec.type.code != 0) writer.add_uint32(kSpecCode, array.spec.type.code);  // 0 is what a broker counts not
  writer.add_uint32(kSpecBits, array.spec.type.bits);
  writer.add_uint32(kSpecLanes, array.spec.type.lanes);
  AddText(writer, kSpecDtype, array.spec.dtype);
  const auto& shape = array.spec.shape;
  const auto& strides = array.spec.strides;
  if (!shape.empty()) writer.add_packed_int64(kSpecShape, shape.begin(), shape.end());
  if (!strides.empty()) writer.add_packed_int64(kSpecStrides, strides.begin(), strides.end());
  if (array.spec.offset != 0) writer.add_uint64(kSpecOffset, array.spec.offset);
  if (array.size != 0) writer.add_uint64(kSpecSize, array.size);
}

void AddArrays(Writer& specs, std::span<const PublishedArray> arrays) {
  for (const PublishedArray& array : arrays) AddArray(specs, array);
}

}  // namespace

std::string Encode(const OpenSession& request) {
  Out out;
  Writer writer(out);
  writer.add_uint32(1, kProtocolVersion);
  writer.add_uint32(2, kProtocolVersion);
  AddText(writer, 3, request.client);
  AddCapabilities(writer, 4, request.capabilities);
  writer.add_uint64(6, request.process_id);
  AddText(writer, 7, request.token);
  return std::move(out).Take();
}

std::string Encode(const Allocate& request) {
  Out out;
  Writer writer(out);
  AddText(writer, 1, request.ns);
  {
    Writer device(writer, 2);
    device.add_int32(1, request.device.type);
    AddText(device, 3, request.device.uuid);
  }
  writer.add_uint64(3, request.size);
  writer.add_uint64(4, request.timeout_ms);
  return std::move(out).Take();
}

std::string Encode(const Publish& request) {
  Out out;
  Writer writer(out);
  AddText(writer, 1, request.ns);
  AddText(writer, 2, request.name);
  writer.add_uint64(3, request.arena);
  writer.add_uint64(4, request.arena_generation);
  writer.add_uint64(5, request.offset);
  writer.add_uint64(6, request.size);
  {
    Writer specs(writer, 7);
    AddArrays(specs, request.arrays);
  }
  if (request.replace) writer.add_bool(8, true);
  if (request.sealed) writer.add_bool(9, true);
  if (!request.fence.done()) {
    Writer fence(writer, 10);
    fence.add_enum(1, kFenceEvent);
    fence.add_bytes(2, request.fence.event);
  }
  AddText(writer, 11, request.structure);
  AddText(writer, 12, request.metadata);
  if (request.channel != 0) writer.add_uint64(13, request.channel);
  if (request.timeout_ms != 0) writer.add_uint64(14, request.timeout_ms);
  if (request.lifetime_ms != 0) writer.add_uint64(15, request.lifetime_ms);
  AddText(writer, 17, request.note);
  return std::move(out).Take();
}

uint64_t SpecBytes(std::span<const PublishedArray> arrays) {
  Out out;
  Writer specs(out);
  AddArrays(specs, arrays);
  return out.size();
}

std::string Encode(const Release& request) {
  Out out;
  Writer writer(out);
  AddNumbers(writer, 1, request.leases);
  AddNumbers(writer, 2, request.arenas);
  AddNumbers(writer, 3, request.unmapped);
  if (request.holds) writer.add_bool(4, true);
  AddNumbers(writer, 5, request.done);
  AddNumbers(writer, 6, request.lost);
  AddNumbers(writer, 15, request.roads);
  if (request.capabilities) AddCapabilities(writer, 16, *request.capabilities);
  for (const auto& [share, note] : request.notes) {
    Writer entry(writer, 7);
    entry.add_uint64(1, share);
    AddText(entry, 2, note);
  }
  return std::move(out).Take();
}

std::string EncodeMapped(uint64_t arena) {
  Out out;
  Writer(out).add_uint64(1, arena);
  return std::move(out).Take();
}

std::string EncodeBrowse(std::string_view ns, BrowsePart part) {
  Out out;
  Writer writer(out);
  AddText(writer, 1, ns);
  if (part != BrowsePart::kCatalogue) writer.add_uint32(2, static_cast<uint32_t>(part));
  return std::move(out).Take();
}

std::string EncodeHoldsMapped(std::string_view ns) {
  Out out;
  Writer writer(out);
  AddText(writer, 2, ns);
  return std::move(out).Take();
}

std::string EncodeQueueMapped() {
  Out out;
  Writer(out).add_bool(3, true);
  return std::move(out).Take();
}

std::string EncodeAcquire(std::string_view ns, std::span<const ShareRef> shares, uint64_t timeout_ms, bool final_only,
                          std::string_view note, uint64_t fence_timeout_ms) {
  Out out;
  Writer writer(out);
  AddText(writer, 1, ns);
  AddRefs(writer, 2, shares);
  if (timeout_ms != 0) writer.add_uint64(3, timeout_ms);
  if (final_only) writer.add_bool(4, true);
  AddText(writer, 5, note);
  if (fence_timeout_ms != 0) writer.add_uint64(6, fence_timeout_ms);
  return std::move(out).Take();
}

std::string EncodeOpenChannel(std::string_view ns, std::string_view name, Channel::Role role, uint64_t capacity) {
  Out out;
  Writer writer(out);
  AddText(writer, 1, ns);
  AddText(writer, 2, name);
  writer.add_uint32(3, static_cast<uint32_t>(role));
  if (capacity != 0) writer.add_uint64(4, capacity);
  return std::move(out).Take();
}

std::string EncodeCloseChannel(uint64_t channel, bool complete) {
  Out out;
  Writer writer(out);
  writer.add_uint64(1, channel);
  if (!complete) writer.add_bool(2, true);
  return std::move(out).Take();
}

std::string EncodeReceive(uint64_t channel, uint64_t timeout_ms, bool off_road) {
  Out out;
  Writer writer(out);
  writer.add_uint64(1, channel);
  if (timeout_ms != 0) writer.add_uint64(2, timeout_ms);
  if (off_road) writer.add_bool(8, true);
  return std::move(out).Take();
}

std::string EncodeRoadMapped(uint64_t channel) {
  Out out;
  Writer(out).add_uint64(8, channel);
  return std::move(out).Take();
}

std::string EncodeBrowseRoad(uint64_t channel, BrowsePart part) {
  Out out;
  Writer writer(out);
  writer.add_uint32(2, static_cast<uint32_t>(part));
  writer.add_uint64(8, channel);
  return std::move(out).Take();
}

std::string EncodeDescription(std::span<const PublishedArray> arrays, std::string_view structure,
                              std::string_view metadata) {
  Out out;
  Writer writer(out);
  {
    Writer specs(writer, 6);
    AddArrays(specs, arrays);
  }
  AddText(writer, 9, structure);
  AddText(writer, 10, metadata);
  return std::move(out).Take();
}

std::string EncodeExport(uint64_t arena, uint64_t generation, uint64_t road_of) {
  Out out;
  Writer writer(out);
  writer.add_uint64(1, arena);
  writer.add_uint64(2, generation);
  if (road_of != 0) writer.add_uint64(8, road_of);
  return std::move(out).Take();
}

std::string EncodeWithdraw(std::string_view ns, std::span<const ShareRef> shares) {
  Out out;
  Writer writer(out);
  AddText(writer, 1, ns);
  AddRefs(writer, 2, shares);
  return std::move(out).Take();
}

std::string EncodeList(std::string_view ns, std::string_view name_prefix, std::string_view page_token) {
  Out out;
  Writer writer(out);
  AddText(writer, 2, ns);
  AddText(writer, 3, name_prefix);
  AddText(writer, 6, page_token);
  return std::move(out).Take();
}

}  // namespace arraybridge::codec
