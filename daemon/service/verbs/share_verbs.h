// SPDX-License-Identifier: Apache-2.0
// ShareVerbs lease shares, release leases, withdraw names and claim them: Acquire, Release, Withdraw, Claim.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/service/verbs/caller.h"
#include "daemon/service/verbs/channel_verbs.h"
#include "daemon/service/verbs/tiers/tier_verbs.h"
#include "daemon/service/verbs/verb_parts.h"
#include "proto/boundary/result.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {

// Thread-safe.
class ShareVerbs : VerbParts {
 public:
  // All arguments outlive it.
  ShareVerbs(const VerbParts& parts, PublishVerbs& publishes, ChannelVerbs& channels, TierVerbs& tiers)
      : VerbParts(parts), publishes_(publishes), channels_(channels), tiers_(tiers) {}

  // `bytes`: those of the request.
  Served Acquire(const Caller& caller, const wire::AcquireRequest& request, std::string_view bytes, const Later& later);
  Result<Answer> Release(const Caller& caller, const wire::ReleaseRequest& request);
  Result<Answer> Withdraw(const Caller& caller, const wire::WithdrawRequest& request);
  Served Claim(const Caller& caller, const wire::ClaimRequest& request, std::string_view bytes, const Later& later);
  // Releases the claim that this answer grants.
  void TakeBackClaimed(const Caller& caller, std::string_view answer);

 private:
  // A request that waits for names.
  struct Wait {
    const std::string bytes;
    const uint64_t timeout_ms;
    const std::function<Result<Answer>(std::string_view bytes)> attempt;
    Status missing;
    Reply reply{};
  };
  // Does not serve the queues, which would call it again: a request that waits for a name is retried when the name is
  // published.
  Result<Answer> AcquireNow(const Caller& caller, const wire::AcquireRequest& request);
  Result<Answer> ClaimNow(const Caller& caller, const wire::ClaimRequest& request);
  void EndClaim(SessionId session, uint64_t number);
  // `names`: number of names that an attempt looks up.
  Served WaitForNames(const Caller& caller, std::string_view ns, size_t names, const std::shared_ptr<Wait>& wait,
                      const Later& later);
  Status EndFences(const Caller& caller, const wire::ReleaseRequest& request, std::vector<uint64_t>* awaited);
  Status OfferAnew(const Caller& caller, const wire::ClientCapabilities& capabilities);

  PublishVerbs& publishes_;
  ChannelVerbs& channels_;
  TierVerbs& tiers_;
};

}  // namespace arraybridge::daemon
