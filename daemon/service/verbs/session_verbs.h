// SPDX-License-Identifier: Apache-2.0
// SessionVerbs open, join and end sessions, including those that lose their rights.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/verbs/channel_verbs.h"
#include "daemon/service/verbs/list_verbs.h"
#include "daemon/service/verbs/tiers/tier_verbs.h"
#include "daemon/service/verbs/verb_parts.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Thread-safe.
class SessionVerbs : VerbParts {
 public:
  // All arguments outlive it.
  SessionVerbs(const VerbParts& parts, PublishVerbs& publishes, TierVerbs& tiers, ChannelVerbs& channels,
               const ListVerbs& lists)
      : VerbParts(parts), publishes_(publishes), tiers_(tiers), channels_(channels), lists_(lists) {}

  // FAILED_PRECONDITION: the protocol ranges do not overlap; the message names both.
  Result<v1::OpenSessionResponse> OpenSession(const wire::OpenSessionRequest& request, Peer peer);
  // A lifeline joins the session of this token to redeem its tickets. NOT_FOUND unless the session has the same uid.
  Result<v1::OpenSessionResponse> Join(const wire::OpenSessionRequest& request, const Peer& peer);
  // A client that speaks gRPC continues the session that the previous daemon opened, with `join`. NOT_FOUND: no session
  // with this token waits for its client.
  Result<v1::OpenSessionResponse> Continue(const wire::OpenSessionRequest& request, Peer peer);
  // Call it once, when the doors know the recovered sessions. Ends those that have lost a right, gives back what the
  // previous daemon had not, and plans the ends of lifetimes and graces. Also ends `awaited` sessions that no client
  // has continued within orphan_grace.
  void GoOn(std::vector<SessionId> awaited);
  // The stream of a client that continued the session ended before it told the client: the session waits again.
  void AwaitAgain(SessionId session);
  // Soon ends the session if it waits for its client. Does not block.
  void EndAwaitedSoon(SessionId session) {
    reclaimer_.Post([this, session] { EndAwaited(session); });
  }
  // As Broker::StoreLifeline.
  Result<StoreGuard> StoreLifeline(SessionId session, int socket) const {
    return broker_.StoreLifeline(session, socket);
  }
  // The answer to the OpenSession of a session that the previous daemon opened.
  Result<v1::OpenSessionResponse> AnswerAgain(SessionId session) const;
  StoreGuard StoredLifeline(SessionId session) const { return broker_.StoredLifeline(session); }
  void Resumed(SessionId session) { broker_.Resumed(session); }
  // Ends the session in the broker, drops its waiters, requests a sweep.
  void EndSession(SessionId session, EndCause cause = EndCause::kClean);
  // The door of the session ends it soon. NOT_FOUND.
  Status CutSession(SessionId session, std::string_view why);
  // Limits, quotas or rights have changed: tries requests that wait for memory, and ends sessions that use a namespace
  // without a right to it.
  Broker::Adopted ConfigurationChanged();

 private:
  // Adds the client's statements about itself.
  void Introduce(const wire::OpenSessionRequest& request, Peer& peer) const;
  void EndAwaited(SessionId session);
  void CountEnd(SessionId session, EndCause cause);
  // `signal`: as of KilledBy.
  void CountClosed(SessionId session, const Peer& peer, int signal);
  Result<v1::OpenSessionResponse> AnswerOf(const Result<OpenedSession>& opened) const;

  PublishVerbs& publishes_;
  TierVerbs& tiers_;
  ChannelVerbs& channels_;
  const ListVerbs& lists_;
  std::atomic<uint64_t> unexplained_{0};  // ended sessions whose process is looked at once more
};

}  // namespace arraybridge::daemon
