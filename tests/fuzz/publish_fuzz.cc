// SPDX-License-Identifier: Apache-2.0
// A Publish must have the same values as libprotobuf reads in the same bytes, and every reader must be able to parse
// the parts that are passed on.
#include <string>
#include <string_view>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/share_wire.h"
#include "proto/wire/messages.h"
#include "tests/fuzz/input.h"

namespace arraybridge::daemon {
namespace {

// False: readers would refuse the specs.
bool CheckSpecs(std::string_view bytes, const v1::ArraySpecs& said) {
  const auto specs = wire::Decode<wire::ArraySpecs>(bytes);
  if (!specs.ok()) return false;
  v1::ArraySpecs again;
  AB_CHECK(again.ParseFromString(wire::Encode(*specs)));
  v1::ArraySpecs known = said;
  known.DiscardUnknownFields();
  AB_CHECK(again.SerializeAsString() == known.SerializeAsString());
  return true;
}

void Publish(std::string_view bytes) {
  const auto request = wire::Decode<wire::PublishRequest>(bytes);
  if (!request.ok() || !wire::Decode<wire::ArraySpecs>(request->specs).ok()) return;
  v1::PublishRequest said;
  AB_CHECK(said.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  AB_CHECK(CheckSpecs(request->specs, said.specs()));
  v1::PublishRequest again;
  AB_CHECK(again.ParseFromString(wire::Encode(*request)));
  said.DiscardUnknownFields();
  again.DiscardUnknownFields();
  AB_CHECK(again.SerializeAsString() == said.SerializeAsString());
  (void)CheckPublish(Limits{}, *request);

  v1::Share share;
  AB_CHECK(share.ParseFromString(CallOf(*request).description));
  share.DiscardUnknownFields();
  AB_CHECK(share.specs().SerializeAsString() == said.specs().SerializeAsString());
  AB_CHECK(share.structure() == said.structure() && share.metadata() == said.metadata());
}

// Reads a description, which is all that a direct channel's entry contains.
void Describe(std::string_view bytes) {
  const auto said = wire::Decode<wire::Share>(bytes);
  if (!said.ok() || !wire::Decode<wire::ArraySpecs>(said->specs).ok()) return;
  const wire::PublishRequest request{.specs = said->specs, .structure = said->structure, .metadata = said->metadata};
  v1::Share share;
  AB_CHECK(share.ParseFromString(CallOf(request).description));
  AB_CHECK(CheckSpecs(request.specs, share.specs()));
  (void)CheckPublish(Limits{}, request);
}

}  // namespace
}  // namespace arraybridge::daemon

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  arraybridge::Input input(data, size);
  const bool direct = (input.Take<uint8_t>() & 1) != 0;
  direct ? arraybridge::daemon::Describe(input.TakeRest()) : arraybridge::daemon::Publish(input.TakeRest());
  return 0;
}
