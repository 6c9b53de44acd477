// SPDX-License-Identifier: Apache-2.0
// Decoding answers about arenas: handles and returned ranges.
#include "client/wire/codec_wire.h"

namespace arraybridge::codec {

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

std::vector<Returned> ReturnedOf(const std::vector<wire::Range>& said) {
  std::vector<Returned> returned;
  returned.reserve(said.size());
  for (const wire::Range& range : said) returned.push_back({range.arena, range.offset, range.size});
  return returned;
}

Result<Allocated> DecodeAllocated(std::string_view message) {
  return Decode<wire::AllocateResponse>(message, [](const auto& said) -> Result<Allocated> {
    Allocated allocated;
    allocated.returned = ReturnedOf(said.returned);
    if (!said.handle) return allocated;
    auto handle = HandleOf(*said.handle);
    if (!handle.ok()) return handle.status();
    allocated.has_handle = true;
    allocated.handle = *std::move(handle);
    return allocated;
  });
}

Result<Handle> DecodeExported(std::string_view message) {
  return Decode<wire::ExportResponse>(message, [](const auto& said) -> Result<Handle> {
    if (!said.handle) return Malformed("export without a handle");
    return HandleOf(*said.handle);
  });
}

Result<Released> DecodeReleased(std::string_view message) {
  return Decode<wire::ReleaseResponse>(message, [](auto& said) -> Result<Released> {
    return Released{ReturnedOf(said.returned), std::move(said.awaited)};
  });
}

Result<Withdrawn> DecodeWithdrawn(std::string_view message) {
  return Decode<wire::WithdrawResponse>(message, [](const auto& said) -> Result<Withdrawn> {
    return Withdrawn{said.withdrawn, ReturnedOf(said.returned)};
  });
}

}  // namespace arraybridge::codec
