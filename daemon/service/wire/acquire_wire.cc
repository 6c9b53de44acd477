// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/wire/acquire_wire.h"

#include "proto/wire/messages.h"

namespace arraybridge {

Result<AcquireAsked> ReadAcquire(std::string_view bytes) {
  const auto said = wire::Decode<wire::AcquireRequest>(bytes);
  if (!said.ok()) return said.status();
  AcquireAsked asked{.bytes = bytes,
                     .ns = said->namespace_,
                     .shares = {},
                     .timeout_ms = said->timeout_ms,
                     .final_only = said->final_only,
                     .fence_timeout_ms = said->fence_timeout_ms,
                     .note = said->note};
  asked.shares.reserve(said->shares.size());
  for (const wire::ShareRef& ref : said->shares) {
    asked.shares.push_back(
        {ref.name.value_or(std::string_view{}), ShareId{ref.id.value_or(0)}, ref.generation, ref.newer_than});
  }
  return asked;
}

}  // namespace arraybridge
