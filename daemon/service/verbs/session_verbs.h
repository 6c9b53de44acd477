// SessionVerbs open, join and end sessions, including those that lose their rights.
#pragma once

#include <string_view>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/reclaim/reclaimer.h"
#include "daemon/service/reclaim/waiting_line.h"
#include "daemon/service/telemetry/service_counts.h"
#include "daemon/service/verbs/admission.h"
#include "daemon/service/verbs/channel_verbs.h"
#include "daemon/service/verbs/list_verbs.h"
#include "daemon/service/verbs/publish_verbs.h"
#include "daemon/service/verbs/session_cuts.h"
#include "daemon/service/wire/handle_offer.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe.
class SessionVerbs {
 public:
  // All arguments outlive it.
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

  // FAILED_PRECONDITION: the protocol ranges do not overlap; the message names both.
  Result<v1::OpenSessionResponse> OpenSession(const v1::OpenSessionRequest& request, Peer peer);
  // A lifeline joins the session of this token to redeem its tickets. NOT_FOUND unless the session has the same uid.
  Result<v1::OpenSessionResponse> Join(const v1::OpenSessionRequest& request, const Peer& peer);
  // Ends the session in the broker, drops its waiters, requests a sweep.
  void EndSession(SessionId session, EndCause cause = EndCause::kClean);
  // The door of the session ends it soon. NOT_FOUND.
  Status CutSession(SessionId session, std::string_view why);
  // Limits, quotas or rights have changed: tries requests that wait for memory, and ends sessions that use a namespace
  // without a right to it.
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
