// SPDX-License-Identifier: Apache-2.0
// Reading answers about shares and their memory. Checks the values that a publisher chose and that a broker of another
// version may have accepted.
#include <memory>
#include <utility>

#include "client/wire/codec.h"

namespace arraybridge::codec {
namespace {

// Returns the error of the first array that cannot be read, and still reads the others.
Status ReadSpecs(std::string_view specs, std::vector<ArraySpec>& arrays) {
  auto list = wire::Decode<wire::ArraySpecs>(specs);
  if (!list.ok()) return InvalidArgument("the publisher's arrays: ", list.status().message()).Because("ELEMENT_TYPE");
  Status unreadable;
  arrays.reserve(list->arrays.size());
  for (wire::ArraySpec& spec : list->arrays) {
    Status checked = CheckElement(spec.code, spec.bits, spec.lanes, arrays.size());
    const DataType type =
        checked.ok() ? DataType{static_cast<uint8_t>(spec.code), static_cast<uint8_t>(spec.bits), 1} : DataType{};
    if (unreadable.ok()) unreadable = std::move(checked);
    arrays.push_back({type, std::string(spec.dtype), std::move(spec.shape), std::move(spec.strides), spec.offset});
  }
  return unreadable;
}

// Not checked for lists, which carry no events.
bool FenceIsSound(const DescribedShare& described) {
  if (described.fence_kind == static_cast<uint32_t>(wire::Fence::Kind::kDone)) return described.fence.done();
  return described.fence_kind == static_cast<uint32_t>(wire::Fence::Kind::kEvent) &&
         described.fence.event.size() == kEventBytes;
}

Sent SentOf(const wire::Sent& message) {
  return {message.sequence, message.stream, message.time_ns,
          std::make_shared<const Sender>(Sender{message.process_id, std::string(message.client)})};
}

Result<DescribedShare> DescribedOf(const wire::Share& message) {
  DescribedShare described;
  if (message.handle) {
    AB_ASSIGN_OR_RETURN(described.handle, HandleOf(*message.handle));
  }
  if (message.fence) {
    described.fence_kind = static_cast<uint32_t>(message.fence->kind);
    described.fence.event = message.fence->opaque;
  }
  Share& share = described.share;
  described.arrays = ReadSpecs(message.specs, share.arrays);
  share.id = message.id;
  share.ns = message.namespace_;
  share.name = message.name;
  share.generation = message.generation;
  share.size = described.handle.size;
  share.device = described.handle.device;
  share.kind = described.handle.kind;
  share.immutability = ImmutabilityOf(message.immutability);
  share.structure = message.structure;
  share.metadata = message.metadata;
  share.unnamed = message.unnamed;
  return described;
}

Result<ListedShare> ListedOf(const wire::ShareInfo& entry) {
  AB_ASSIGN_OR_RETURN(auto described, DescribedOf(entry.share.value_or(wire::Share{})));
  return ListedShare{std::move(described.share), entry.maker, entry.maker_process_id, entry.leases, entry.age_ms};
}

}  // namespace

Device DeviceOf(const std::optional<wire::Device>& device) {
  if (!device) return {};
  return {device->type, device->id, std::string(device->uuid)};
}

Result<Handle> HandleOf(const wire::Handle& raw) {
  if (raw.kind < wire::HandleKind::kUnspecified || raw.kind > wire::HandleKind::kCudaIpc) {
    return Malformed("kind of handle");
  }
  if (raw.offset > raw.arena_size || raw.size > raw.arena_size - raw.offset) return Malformed("range");
  Handle handle;
  handle.kind = static_cast<HandleKind>(raw.kind);
  handle.opaque = raw.opaque;
  handle.arena = raw.arena;
  handle.generation = raw.generation;
  handle.offset = raw.offset;
  handle.size = raw.size;
  handle.arena_size = raw.arena_size;
  handle.device = DeviceOf(raw.device);
  return handle;
}

Immutability ImmutabilityOf(wire::Immutability value) {
  return value == wire::Immutability::kEnforced ? Immutability::kEnforced : Immutability::kByContract;
}

Result<Handle> DecodeExported(std::string_view message) {
  return Read<wire::ExportResponse>(message, [](const auto& reply) -> Result<Handle> {
    if (!reply.handle) return Malformed("export without a handle");
    return HandleOf(*reply.handle);
  });
}

Result<Grants> DecodeGrants(std::string_view message) {
  return Read<wire::AcquireResponse>(message, [](const auto& reply) -> Result<Grants> {
    Grants grants;
    grants.shares.reserve(reply.shares.size());
    for (const wire::LeasedShare& leased : reply.shares) {
      grants.shares.push_back({leased.lease, leased.share, leased.sent ? SentOf(*leased.sent) : Sent{}});
    }
    grants.descriptor_arena = reply.descriptor_arena;
    return grants;
  });
}

Result<DescribedShare> DecodeShare(std::string_view message) {
  auto described = DecodeDescription(message);
  if (!described.ok()) return described;
  if (!FenceIsSound(*described)) return Malformed("fence");
  if (described->handle.arena_size == 0 || described->handle.kind == HandleKind{}) return Malformed("handle");
  return described;
}

Result<DescribedShare> DecodeDescription(std::string_view message) { return Read<wire::Share>(message, DescribedOf); }

Result<Listed> DecodeListed(std::string_view message) {
  return Read<wire::ListResponse>(message, [](const auto& reply) -> Result<Listed> {
    Listed listed;
    for (const wire::ShareInfo& info : reply.shares) {
      AB_ASSIGN_OR_RETURN(auto share, ListedOf(info));
      listed.shares.push_back(std::move(share));
    }
    listed.next_page_token = reply.next_page_token;
    return listed;
  });
}

}  // namespace arraybridge::codec
