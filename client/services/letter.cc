// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/services/letter.h>

#include "client/services/wire_letter.h"
#include "proto/wire/reader.h"
#include "proto/wire/writer.h"

namespace arraybridge {

namespace {

constexpr size_t kHeldMost = 4096;

}  // namespace

std::string ServiceLetter::Encoded() const {
  return wire::Encode(services::Letter{kind, peer, number, due_ns, text, retry, held, room});
}

std::optional<ServiceLetter> ServiceLetter::Of(std::string_view metadata) {
  auto letter = wire::Decode<services::Letter>(metadata);
  if (!letter.ok() || letter->kind.empty() || letter->held.size() > kHeldMost) return std::nullopt;
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
