// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/wire/share_wire.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "proto/wire/messages.h"

namespace arraybridge {
namespace {

wire::Handle HandleOf(const Handle& handle) {
  return {.kind = static_cast<wire::HandleKind>(handle.kind),
          .arena = handle.arena,
          .generation = handle.generation,
          .offset = handle.offset,
          .size = handle.size,
          .arena_size = handle.arena_size,
          .device = wire::Device{handle.device.type, handle.device.id, handle.device.uuid},
          .opaque = handle.opaque};
}

// The Share without its description.
wire::Share ShareOf(const LeasedShare& leased) {
  const ShareFacts& facts = *leased.facts;
  wire::Share share{.id = Number(facts.id),
                    .namespace_ = facts.ns,
                    .name = facts.name,
                    .generation = facts.generation,
                    .handle = HandleOf(leased.handle),
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

PublishCall CallOf(const PublishAsked& asked) {
  PublishCall call;
  call.ns = asked.ns;
  call.name = asked.name;
  call.arena = ArenaId{asked.arena};
  call.arena_generation = asked.arena_generation;
  call.offset = asked.offset;
  call.size = asked.size;
  call.description =
      wire::Encode(wire::Share{.specs = asked.specs, .structure = asked.structure, .metadata = asked.metadata});
  call.replace = asked.replace;
  call.sealed = asked.sealed;
  // A number of milliseconds that the clock cannot represent means no limit.
  constexpr uint64_t kLongest = std::numeric_limits<int64_t>::max() / 1'000'000;
  call.lifetime = std::chrono::milliseconds(std::min(asked.lifetime_ms, kLongest));
  if (asked.fence_kind == v1::Fence::EVENT) call.fence.event = asked.fence_event;
  call.channel = ChannelEndId{asked.channel};
  if (asked.source_lease != 0 || asked.source_share != 0 || asked.source_direct_channel != 0) {
    call.source = ShareSource{LeaseId{asked.source_lease}, ShareId{asked.source_share}, asked.source_direct_channel,
                              asked.source_bit};
  }
  call.note = asked.note;
  call.seen_notice = asked.seen_notice;
  return call;
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

bool ReadBack(const std::string& response, v1::AcquireResponse* message) { return message->ParseFromString(response); }

void AppendDescriptorArena(uint64_t arena, std::string* response) {
  const wire::AcquireResponse message{.descriptor_arena = arena};
  wire::AppendBackwards(response, [&](auto& out) { Write(out, message); });
}

}  // namespace arraybridge
