// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/http/live/tier_json.h"

#include <google/protobuf/util/json_util.h>

#include <string>

#include "arraybridge/v1/tiers.pb.h"
#include "proto/boundary/text.h"

namespace arraybridge::daemon {

Http::Page TierJson(const TierNumbers& tier) {
  v1::TierResponse response;
  response.set_disk_bytes(tier.bytes);
  response.set_disk_bytes_max(tier.bytes_max);
  response.set_off(Printable(tier.off));
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(response, &json, options);
  AB_CHECK(status.ok());  // all texts are Printable
  return {200, "application/json", std::move(json)};
}

}  // namespace arraybridge::daemon
