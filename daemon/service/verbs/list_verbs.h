// SPDX-License-Identifier: Apache-2.0
// ListVerbs report the broker's content and counts: GetServerInfo, List, GetStats, Inspect.
#pragma once

#include <string>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/reclaim/waiting_line.h"
#include "daemon/service/telemetry/service_counts.h"
#include "daemon/service/verbs/admission.h"
#include "daemon/service/verbs/caller.h"
#include "daemon/service/verbs/publish_verbs.h"
#include "daemon/service/wire/handle_offer.h"
#include "daemon/service/wire/life.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// The reason why the daemon serves no GPU. Empty: it serves some.
struct NoGpu {
  std::string why;
  RefusalCause cause{};
};

// Thread-safe.
class ListVerbs {
 public:
  // All arguments outlive it.
  ListVerbs(const Config& config, Broker& broker, const RunsAt& here, NoGpu no_gpu, Life life,
            const Admission& admission, const WaitingLine& line, PublishVerbs& publishes, const ServiceCounts& counts)
      : config_(config),
        broker_(broker),
        here_(here),
        no_gpu_(std::move(no_gpu)),
        life_(std::move(life)),
        admission_(admission),
        line_(line),
        publishes_(publishes),
        counts_(counts) {}

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

  const Config& config_;
  Broker& broker_;
  const RunsAt& here_;
  const NoGpu no_gpu_;
  const Life life_;
  const Admission& admission_;
  const WaitingLine& line_;
  PublishVerbs& publishes_;
  const ServiceCounts& counts_;
  const Clock::time_point started_ = Clock::now();
};

}  // namespace arraybridge::daemon
