// SPDX-License-Identifier: Apache-2.0
// ArenaVerbs: Allocate, Mapped, Export, Redeem and Browse. They allocate arenas and export descriptors of arenas and of
// the broker's own pages. Allocate may wait for memory, on the threads for slow work.
#pragma once

#include <functional>
#include <string_view>

#include "daemon/service/verbs/caller.h"
#include "daemon/service/verbs/channel_verbs.h"
#include "daemon/service/verbs/tiers/tier_verbs.h"
#include "daemon/service/verbs/verb_parts.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {

// Thread-safe.
class ArenaVerbs : VerbParts {
 public:
  // All arguments outlive it. `allocated` runs after each allocation and must not block.
  ArenaVerbs(const VerbParts& parts, ChannelVerbs& channels, TierVerbs& tiers, std::function<void()> allocated)
      : VerbParts(parts), channels_(channels), tiers_(tiers), allocated_(std::move(allocated)) {}

  // `bytes`: those of the request.
  Served Allocate(const Caller& caller, const wire::AllocateRequest& request, std::string_view bytes,
                  const Later& later);
  Result<Answer> Mapped(const Caller& caller, const wire::MappedRequest& request);
  Result<Answer> Export(const Caller& caller, const wire::ExportRequest& request);
  Result<Answer> Redeem(const Caller& caller, const wire::RedeemRequest& request);
  // The answer carries the descriptor, so only lifelines can call it.
  Result<Answer> Browse(const Caller& caller, const wire::BrowseRequest& request);
  // Undo a grant whose answer cannot reach the caller. An arena or session that is gone meanwhile is no error.
  void TakeBackAllocated(const Caller& caller, std::string_view granted);
  void TakeBackExported(const Caller& caller, std::string_view granted);

 private:
  class Pending;  // an Allocate that is not answered yet
  Result<std::vector<UniqueFd>> ExportPages(const Caller& caller, const wire::BrowseRequest& request);

  ChannelVerbs& channels_;
  TierVerbs& tiers_;
  const std::function<void()> allocated_;
};

}  // namespace arraybridge::daemon
