// SPDX-License-Identifier: Apache-2.0
// ReadPublish, which reads a Publish in place, must return the same values as libprotobuf for the same bytes, and every
// reader must be able to parse the parts that are passed on.
#include <string>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/publish_wire.h"
#include "daemon/service/wire/share_wire.h"
#include "proto/wire/messages.h"
#include "tests/fuzz/input.h"

namespace arraybridge {
namespace {

void CheckSpecs(const PublishAsked& asked, const v1::ArraySpecs& said) {
  const auto specs = wire::Decode<wire::ArraySpecs>(asked.specs);
  AB_CHECK(specs.ok() && specs->arrays.size() == asked.arrays);
  v1::ArraySpecs again;
  AB_CHECK(again.ParseFromString(wire::Encode(*specs)));
  v1::ArraySpecs known = said;
  known.DiscardUnknownFields();
  AB_CHECK(again.SerializeAsString() == known.SerializeAsString());
}

bool AllSpecsAreGood(const PublishAsked& asked) { return wire::Decode<wire::ArraySpecs>(asked.specs).ok(); }

void Publish(std::string_view bytes) {
  const auto asked = ReadPublish(bytes);
  if (!asked.ok() || !AllSpecsAreGood(*asked)) return;
  v1::PublishRequest said;
  AB_CHECK(said.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  AB_CHECK(asked->ns == said.namespace_() && asked->name == said.name() && asked->note == said.note());
  AB_CHECK(asked->arena == said.arena() && asked->arena_generation == said.arena_generation());
  AB_CHECK(asked->offset == said.offset() && asked->size == said.size());
  AB_CHECK(asked->replace == said.replace() && asked->sealed == said.sealed());
  AB_CHECK(asked->fence_kind == said.fence().kind() && asked->fence_event == said.fence().opaque());
  AB_CHECK(asked->structure == said.structure() && asked->metadata == said.metadata());
  AB_CHECK(asked->channel == said.channel() && asked->timeout_ms == said.timeout_ms());
  AB_CHECK(asked->lifetime_ms == said.lifetime_ms());
  CheckSpecs(*asked, said.specs());
  (void)CheckPublish(Limits{}, *asked);

  const std::string description = CallOf(*asked).description;
  v1::Share share;
  AB_CHECK(share.ParseFromString(description));
  AB_CHECK(share.specs().SerializeAsString() == said.specs().SerializeAsString());
  AB_CHECK(share.structure() == said.structure() && share.metadata() == said.metadata());
  const auto again = ReadDescription(description);
  AB_CHECK(again.ok() && again->specs == asked->specs && again->structure == asked->structure);
}

// Reads a description, which is all that a direct channel's entry contains.
void Describe(std::string_view bytes) {
  const auto asked = ReadDescription(bytes);
  if (!asked.ok() || !AllSpecsAreGood(*asked)) return;
  v1::Share share;
  AB_CHECK(share.ParseFromString(CallOf(*asked).description));
  CheckSpecs(*asked, share.specs());
  (void)CheckPublish(Limits{}, *asked);
}

}  // namespace
}  // namespace arraybridge

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  arraybridge::Input input(data, size);
  const bool direct = (input.Take<uint8_t>() & 1) != 0;
  direct ? arraybridge::Describe(input.TakeRest()) : arraybridge::Publish(input.TakeRest());
  return 0;
}
