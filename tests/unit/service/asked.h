// SPDX-License-Identifier: Apache-2.0
// Messages in the form in which a door passes them on.
#pragma once

#include <string>
#include <string_view>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/wire/acquire_wire.h"
#include "daemon/service/wire/publish_wire.h"

namespace arraybridge {

template <class Message, class Wire, Result<Wire> (*kRead)(std::string_view)>
class AskedBy {
 public:
  explicit AskedBy(const Message& request) : bytes_(request.SerializeAsString()), asked_(kRead(bytes_)) {}
  AskedBy(const AskedBy&) = delete;
  AskedBy& operator=(const AskedBy&) = delete;
  operator const Wire&() const { return *asked_; }  // NOLINT(google-explicit-constructor)

 private:
  const std::string bytes_;
  const Result<Wire> asked_;
};

using Asked = AskedBy<v1::PublishRequest, PublishAsked, ReadPublish>;
using AskedFor = AskedBy<v1::AcquireRequest, AcquireAsked, ReadAcquire>;

}  // namespace arraybridge
