// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/wire/publish_wire.h"

#include "proto/wire/messages.h"

namespace arraybridge {
namespace {

// Counts the arrays in `specs`, because their number is limited before any of them is decoded.
Result<PublishAsked> WithArraysCounted(PublishAsked asked) {
  wire::Fault fault;
  wire::Reader specs(asked.specs, &fault);
  for (; specs.Next(); specs.Skip()) {
    if (specs.tag() == wire::Tag(1, wire::Type::kBytes)) ++asked.arrays;  // ArraySpecs.arrays
  }
  if (!specs.End("ArraySpecs")) return wire::Malformed(fault);
  return asked;
}

}  // namespace

Result<PublishAsked> ReadPublish(std::string_view bytes) {
  const auto said = wire::Decode<wire::PublishRequest>(bytes);
  if (!said.ok()) return said.status();
  const wire::Fence fence = said->fence.value_or(wire::Fence{});
  const wire::Source source = said->source.value_or(wire::Source{});
  return WithArraysCounted({.bytes = bytes,
                            .ns = said->namespace_,
                            .name = said->name,
                            .arena = said->arena,
                            .arena_generation = said->arena_generation,
                            .offset = said->offset,
                            .size = said->size,
                            .specs = said->specs,
                            .replace = said->replace,
                            .sealed = said->sealed,
                            .fence_kind = static_cast<int32_t>(fence.kind),
                            .fence_event = fence.opaque,
                            .structure = said->structure,
                            .metadata = said->metadata,
                            .channel = said->channel,
                            .timeout_ms = said->timeout_ms,
                            .lifetime_ms = said->lifetime_ms,
                            .note = said->note,
                            .seen_notice = said->seen_notice,
                            .source_lease = source.lease,
                            .source_share = source.share,
                            .source_direct_channel = source.direct_channel_number,
                            .source_bit = source.direct_channel_bit});
}

Result<PublishAsked> ReadDescription(std::string_view bytes) {
  const auto said = wire::Decode<wire::Share>(bytes);
  if (!said.ok()) return said.status();
  return WithArraysCounted(
      {.bytes = bytes, .specs = said->specs, .structure = said->structure, .metadata = said->metadata});
}

}  // namespace arraybridge
