// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/services/letter.h>

#include <algorithm>

#include "client/services/wire_letter.h"
#include "proto/wire/reader.h"
#include "proto/wire/writer.h"

namespace arraybridge {

namespace {

constexpr size_t kHeldMost = 4096;
constexpr size_t kPeerMost = 64;

// It is a part of the name of a channel.
bool IsPeer(std::string_view text) {
  const auto may_stand = [](char each) {
    return (each >= '0' && each <= '9') || (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') ||
           each == '-' || each == '_';
  };
  return text.size() <= kPeerMost && std::ranges::all_of(text, may_stand);
}

}  // namespace

std::string ServiceLetter::Encoded() const {
  return wire::Encode(services::Letter{kind, peer, number, due_ns, text, retry, held, room});
}

std::optional<ServiceLetter> ServiceLetter::Of(std::string_view metadata) {
  auto letter = wire::Decode<services::Letter>(metadata);
  if (!letter.ok() || letter->kind.empty() || letter->held.size() > kHeldMost || !IsPeer(letter->peer))
    return std::nullopt;
  return ServiceLetter{std::string(letter->kind),
                       std::string(letter->peer),
                       letter->number,
                       letter->due_ns,
                       std::string(letter->text),
                       letter->retry,
                       std::move(letter->held),
                       letter->room};
}

}  // namespace arraybridge
