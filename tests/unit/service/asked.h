// A message as a door hands it on.
#pragma once

#include <string>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/publish_wire.h"

namespace arraybridge {

class Asked {
 public:
  explicit Asked(const v1::PublishRequest& request)
      : bytes_(request.SerializeAsString()), asked_(ReadPublish(bytes_)) {}
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
  operator const PublishAsked&() const { return *asked_; }  // NOLINT(google-explicit-constructor)

 private:
  const std::string bytes_;
  const Result<PublishAsked> asked_;
};

}  // namespace arraybridge
