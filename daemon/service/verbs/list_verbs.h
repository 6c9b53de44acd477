// SPDX-License-Identifier: Apache-2.0
// ListVerbs report the broker's content and counts: GetServerInfo, List, GetStats, Inspect.
#pragma once

#include <string>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/verbs/caller.h"
#include "daemon/service/verbs/publish_verbs.h"
#include "daemon/service/verbs/verb_parts.h"
#include "daemon/service/wire/life.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// The reason why the daemon serves no GPU. Empty: it serves some.
struct NoGpu {
  std::string why;
  RefusalCause cause{};
};

// Thread-safe.
class ListVerbs : VerbParts {
 public:
  // All arguments outlive it.
  ListVerbs(const VerbParts& parts, NoGpu no_gpu, Life life, PublishVerbs& publishes)
      : VerbParts(parts), no_gpu_(std::move(no_gpu)), life_(std::move(life)), publishes_(publishes) {}

  v1::GetServerInfoResponse GetServerInfo() const;
  Result<Answer> AnswerServerInfo(const Caller&, const wire::GetServerInfoRequest&) {
    return AnswerOf(GetServerInfo());
  }
  Result<Answer> List(const Caller& caller, const v1::ListRequest& request);
  // The same for all users, for an administrator.
  Result<v1::ListResponse> ListEverybodys(const v1::ListRequest& request) const;
  Result<Answer> GetStats(const Caller& caller, const wire::GetStatsRequest& request);
  // The counts without a caller.
  v1::GetStatsResponse Stats() const { return Stats(broker_.TakeSnapshot()); }
  v1::GetStatsResponse Stats(const Snapshot& snapshot) const;
  Result<Answer> Inspect(const Caller& caller, const v1::InspectRequest& request);
  Clock::time_point started() const { return started_; }
  const Life& life() const { return life_; }

 private:
  Result<v1::ListResponse> ListPage(SessionId session, bool everybody, const v1::ListRequest& request) const;

  const NoGpu no_gpu_;
  const Life life_;
  PublishVerbs& publishes_;
  const Clock::time_point started_ = Clock::now();
};

}  // namespace arraybridge::daemon
