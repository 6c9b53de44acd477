// What is read of a Publish where it lies is what libprotobuf reads of the same bytes, and what is handed on of it can
// be read by everybody.
#include <string>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/message_limits.h"
#include "daemon/service/publish_wire.h"
#include "daemon/service/share_wire.h"
#include "tests/fuzz/input.h"

namespace arraybridge {
namespace {

void CheckSpecs(const PublishAsked& asked, const v1::ArraySpecs& said) {
  AB_CHECK(asked.arrays == static_cast<uint64_t>(said.arrays_size()));
  SpecsReader specs(asked.specs);
  for (const v1::ArraySpec& spec : said.arrays()) {
    const auto facts = specs.Next();
    AB_CHECK(facts.ok());
    AB_CHECK(facts->bits == spec.bits() && facts->lanes == spec.lanes());
    AB_CHECK(facts->rank == static_cast<uint64_t>(spec.shape_size()));
    AB_CHECK(facts->strides == static_cast<uint64_t>(spec.strides_size()));
    AB_CHECK(facts->offset == spec.offset() && facts->size == spec.size());
    uint64_t elements = 1;
    for (const int64_t extent : spec.shape()) {
      if (__builtin_mul_overflow(elements, static_cast<uint64_t>(extent), &elements)) elements = UINT64_MAX;
    }
    AB_CHECK(facts->elements == elements);
    const auto negative = std::ranges::find_if(spec.shape(), [](int64_t extent) { return extent < 0; });
    AB_CHECK(facts->negative_extent.has_value() == (negative != spec.shape().end()));
    if (facts->negative_extent) AB_CHECK(*facts->negative_extent == *negative);
  }
}

// Until the first that is none: what follows it is looked at by nobody.
bool AllSpecsAreGood(const PublishAsked& asked) {
  SpecsReader specs(asked.specs);
  for (uint64_t i = 0; i < asked.arrays; ++i) {
    if (!specs.Next().ok()) return false;
  }
  return true;
}

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

// Of a road's entry, which says no more than this.
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
  const bool road = (input.Take<uint8_t>() & 1) != 0;
  road ? arraybridge::Describe(input.TakeRest()) : arraybridge::Publish(input.TakeRest());
  return 0;
}
