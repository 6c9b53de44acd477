// SessionVerbs open, join and end sessions, also those that lose their rights.
#pragma once

#include <string_view>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/handle_offer.h"
#include "daemon/service/reclaimer.h"
#include "daemon/service/service_counts.h"
#include "daemon/service/verbs/admission.h"
#include "daemon/service/verbs/channel_verbs.h"
#include "daemon/service/verbs/list_verbs.h"
#include "daemon/service/verbs/publish_verbs.h"
#include "daemon/service/verbs/session_cuts.h"
#include "daemon/service/waiting_line.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe.
class SessionVerbs {
 public:
  // All outlive it.
  SessionVerbs(const Config& config, Broker& broker, const RunsAt& here, const Admission& admission, WaitingLine& line,
               Reclaimer& reclaimer, PublishVerbs& publishes, ChannelVerbs& channels, const ListVerbs& lists,
               ServiceCounts& counts, SessionCuts& cuts)
      : config_(config),
        broker_(broker),
        here_(here),
        admission_(admission),
        line_(line),
        reclaimer_(reclaimer),
        publishes_(publishes),
        channels_(channels),
        lists_(lists),
        counts_(counts),
        cuts_(cuts) {}

  // FAILED_PRECONDITION names both protocol ranges if they do not meet.
  Result<v1::OpenSessionResponse> OpenSession(const v1::OpenSessionRequest& request, Peer peer);
  // A lifeline joins the session that this token names, to redeem its tickets. NOT_FOUND unless it is the same uid's.
  Result<v1::OpenSessionResponse> Join(const v1::OpenSessionRequest& request, const Peer& peer);
  // Ends it in the broker, drops its waiters, asks for a sweep.
  void EndSession(SessionId session, EndCause cause = EndCause::kClean);
  // Its door ends it soon. NOT_FOUND.
  Status CutSession(SessionId session, std::string_view why);
  // Limits, quotas or rights are others than they were: requests that wait for memory may fit now, and sessions that
  // have something without a right to it are ended.
  Broker::Adopted ConfigurationChanged();

 private:
  const Config& config_;
  Broker& broker_;
  const RunsAt& here_;
  const Admission& admission_;
  WaitingLine& line_;
  Reclaimer& reclaimer_;
  PublishVerbs& publishes_;
  ChannelVerbs& channels_;
  const ListVerbs& lists_;
  ServiceCounts& counts_;
  SessionCuts& cuts_;
};

}  // namespace arraybridge
