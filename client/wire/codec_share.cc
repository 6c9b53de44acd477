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
  auto said = wire::Decode<wire::ArraySpecs>(specs);
  if (!said.ok()) return InvalidArgument("the publisher's arrays: ", said.status().message()).Because("ELEMENT_TYPE");
  Status unreadable;
  arrays.reserve(said->arrays.size());
  for (wire::ArraySpec& spec : said->arrays) {
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

Sent SentOf(const wire::Sent& said) {
  return {said.sequence, said.stream, said.time_ns,
          std::make_shared<const Sender>(Sender{said.process_id, std::string(said.client)})};
}

Result<DescribedShare> DescribedOf(const wire::Share& said) {
  DescribedShare described;
  if (said.handle) {
    auto handle = HandleOf(*said.handle);
    if (!handle.ok()) return handle.status();
    described.handle = *std::move(handle);
  }
  if (said.fence) {
    described.fence_kind = static_cast<uint32_t>(said.fence->kind);
    described.fence.event = said.fence->opaque;
  }
  Share& share = described.share;
  described.arrays = ReadSpecs(said.specs, share.arrays);
  share.id = said.id;
  share.ns = said.namespace_;
  share.name = said.name;
  share.generation = said.generation;
  share.size = described.handle.size;
  share.device = described.handle.device;
  share.kind = described.handle.kind;
  share.immutability = ImmutabilityOf(said.immutability);
  share.structure = said.structure;
  share.metadata = said.metadata;
  share.unnamed = said.unnamed;
  return described;
}

Result<ListedShare> ListedOf(const wire::ShareInfo& said) {
  auto described = DescribedOf(said.share.value_or(wire::Share{}));
  if (!described.ok()) return described.status();
  return ListedShare{std::move(described->share), said.maker, said.maker_process_id, said.leases, said.age_ms};
}

}  // namespace

Device DeviceOf(const std::optional<wire::Device>& said) {
  if (!said) return {};
  return {said->type, said->id, std::string(said->uuid)};
}

Result<Handle> HandleOf(const wire::Handle& said) {
  if (said.kind < wire::HandleKind::kMemfd || said.kind > wire::HandleKind::kCudaIpc) {
    return Malformed("kind of handle");
  }
  if (said.offset > said.arena_size || said.size > said.arena_size - said.offset) return Malformed("range");
  Handle handle;
  handle.kind = static_cast<HandleKind>(said.kind);
  handle.opaque = said.opaque;
  handle.arena = said.arena;
  handle.generation = said.generation;
  handle.offset = said.offset;
  handle.size = said.size;
  handle.arena_size = said.arena_size;
  handle.device = DeviceOf(said.device);
  return handle;
}

Immutability ImmutabilityOf(wire::Immutability said) {
  return said == wire::Immutability::kEnforced ? Immutability::kEnforced : Immutability::kByContract;
}

Result<Handle> DecodeExported(std::string_view message) {
  return Read<wire::ExportResponse>(message, [](const auto& said) -> Result<Handle> {
    if (!said.handle) return Malformed("export without a handle");
    return HandleOf(*said.handle);
  });
}

Result<Grants> DecodeGrants(std::string_view message) {
  return Read<wire::AcquireResponse>(message, [](const auto& said) -> Result<Grants> {
    Grants grants;
    grants.shares.reserve(said.shares.size());
    for (const wire::LeasedShare& leased : said.shares) {
      grants.shares.push_back({leased.lease, leased.share, leased.sent ? SentOf(*leased.sent) : Sent{}});
    }
    grants.descriptor_arena = said.descriptor_arena;
    return grants;
  });
}

Result<DescribedShare> DecodeShare(std::string_view message) {
  auto described = DecodeDescription(message);
  if (!described.ok()) return described;
  if (!FenceIsSound(*described)) return Malformed("fence");
  if (described->handle.arena_size == 0) return Malformed("share without a handle");
  return described;
}

Result<DescribedShare> DecodeDescription(std::string_view message) { return Read<wire::Share>(message, DescribedOf); }

Result<Listed> DecodeListed(std::string_view message) {
  return Read<wire::ListResponse>(message, [](const auto& said) -> Result<Listed> {
    Listed listed;
    for (const wire::ShareInfo& info : said.shares) {
      auto share = ListedOf(info);
      if (!share.ok()) return share.status();
      listed.shares.push_back(*std::move(share));
    }
    listed.next_page_token = said.next_page_token;
    return listed;
  });
}

}  // namespace arraybridge::codec
