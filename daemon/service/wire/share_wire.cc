// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/wire/share_wire.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "proto/wire/messages.h"

namespace arraybridge::daemon {
wire::Handle ToWire(const Handle& handle) {
  return {.kind = static_cast<wire::HandleKind>(handle.kind),
          .arena = handle.arena,
          .generation = handle.generation,
          .offset = handle.offset,
          .size = handle.size,
          .arena_size = handle.arena_size,
          .device = wire::Device{handle.device.type, handle.device.id, handle.device.uuid},
          .opaque = handle.opaque};
}

namespace {

// The Share without its description.
wire::Share ShareOf(const LeasedShare& leased) {
  const ShareFacts& facts = *leased.facts;
  wire::Share share{.id = Number(facts.id),
                    .namespace_ = facts.ns,
                    .name = facts.name,
                    .generation = facts.generation,
                    .handle = ToWire(leased.handle),
                    .immutability = static_cast<wire::Immutability>(leased.immutability),
                    .unnamed = facts.unnamed};
  if (!leased.fence.done()) share.fence = wire::Fence{wire::Fence::Kind::kEvent, leased.fence.event};
  return share;
}

wire::Sent SentOf(const SentFacts& sent, ChannelEndId receiver) {
  return {.sequence = sent.sequence,
          .stream = sent.stream,
          .time_ns = sent.time_ns,
          .process_id = sent.process_id,
          .client = sent.client == nullptr ? std::string_view{} : *sent.client,
          .receiver = Number(receiver)};
}

}  // namespace

PublishCall CallOf(const wire::PublishRequest& request) {
  PublishCall call;
  call.ns = request.namespace_;
  call.name = request.name;
  call.arena = ArenaId{request.arena};
  call.arena_generation = request.arena_generation;
  call.offset = request.offset;
  call.size = request.size;
  call.description =
      wire::Encode(wire::Share{.specs = request.specs, .structure = request.structure, .metadata = request.metadata});
  call.replace = request.replace;
  call.sealed = request.sealed;
  // A number of milliseconds that the clock cannot represent means no limit.
  constexpr uint64_t kLongest = std::numeric_limits<int64_t>::max() / 1'000'000;
  call.lifetime = std::chrono::milliseconds(std::min(request.lifetime_ms, kLongest));
  if (HasEvent(request)) call.fence.event = request.fence->opaque;
  call.channel = ChannelEndId{request.channel};
  const wire::Source source = request.source.value_or(wire::Source{});
  if (source.lease != 0 || source.share != 0 || source.direct_channel_number != 0) {
    call.source = ShareSource{LeaseId{source.lease}, ShareId{source.share}, source.direct_channel_number,
                              source.direct_channel_bit};
  }
  call.note = request.note;
  call.seen_notice = request.seen_notice;
  return call;
}

bool HasEvent(const wire::PublishRequest& request) {
  return request.fence && request.fence->kind == wire::Fence::Kind::kEvent;
}

void AppendLeased(const LeasedShare& leased, std::string* response) {
  const wire::Share share = ShareOf(leased);
  wire::AppendBackwards(response, [&](auto& out) {
    if (leased.facts->sent != nullptr) {
      Write(out, SentOf(*leased.facts->sent, leased.receiver));
      out.Nest(3, 0);  // LeasedShare.sent
    }
    const size_t before = out.bytes();
    out.Raw(leased.facts->description);  // the other fields of the Share
    Write(out, share);
    out.Nest(2, before);  // LeasedShare.share
    out.Put(1, Number(leased.lease));
    out.Nest(1, 0);  // AcquireResponse.shares
  });
}

void AppendDescriptorArena(uint64_t arena, std::string* response) {
  const wire::AcquireResponse message{.descriptor_arena = arena};
  wire::AppendBackwards(response, [&](auto& out) { Write(out, message); });
}

}  // namespace arraybridge::daemon
