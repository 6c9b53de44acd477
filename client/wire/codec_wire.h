// SPDX-License-Identifier: Apache-2.0
// Conversions from messages to values, shared by the codec's source files.
#pragma once

#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/wire/codec.h"
#include "proto/wire/messages.h"

namespace arraybridge::codec {

inline Status Malformed(const char* what) {
  return Status(Code::kDataLoss, Concat("the broker's answer has a malformed ", what), "MALFORMED_ANSWER");
}

// Decodes `bytes` as a Message and passes it to `convert`, which returns a Result.
template <class Message, class Convert>
auto Decode(std::string_view bytes, Convert convert) -> decltype(convert(std::declval<Message&>())) try {
  auto message = wire::Decode<Message>(bytes);
  if (message.ok()) return convert(*message);
  return Status(Code::kDataLoss, "the broker's answer: " + message.status().message(), "MALFORMED_ANSWER");
} catch (const std::bad_alloc&) {
  return ResourceExhausted("no memory for an answer of ", bytes.size(), " bytes");
}

Device DeviceOf(const std::optional<wire::Device>& said);
Result<Handle> HandleOf(const wire::Handle& said);
std::vector<Returned> ReturnedOf(const std::vector<wire::Range>& said);

}  // namespace arraybridge::codec
