// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/session_verbs.h"

#include <utility>

#include "daemon/service/system/exit_status.h"
#include "daemon/service/verbs/channel_turns.h"
#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/messages.h"
#include "proto/boundary/frame.h"

namespace arraybridge::daemon {
Result<v1::OpenSessionResponse> SessionVerbs::OpenSession(const wire::OpenSessionRequest& request, Peer peer) {
  AB_RETURN_IF_ERROR(CheckHello(request));
  AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
  Introduce(request, peer);
  auto opened = broker_.OpenSession(peer);
  // A session of the same user whose client may never come back makes room.
  while (!opened.ok() && opened.status().reason() == "TOO_MANY_SESSIONS") {
    const auto awaited = broker_.AwaitedOf(peer.uid);
    if (!awaited) break;
    EndAwaited(*awaited);
    opened = broker_.OpenSession(peer);
  }
  return AnswerOf(opened);
}

void SessionVerbs::Introduce(const wire::OpenSessionRequest& request, Peer& peer) const {
  peer.client = request.client;
  peer.token = request.token;
  const wire::ClientCapabilities capabilities = request.capabilities.value_or(wire::ClientCapabilities{});
  OfferHandles(capabilities, here_, peer);
  if (config_.cuda_events) OfferEvents(capabilities, peer);
  if (peer.process_id == 0) peer.process_id = request.process_id;
}

Result<v1::OpenSessionResponse> SessionVerbs::AnswerAgain(SessionId session) const {
  return AnswerOf(broker_.OpenedAs(session));
}

Result<v1::OpenSessionResponse> SessionVerbs::AnswerOf(const Result<OpenedSession>& opened) const {
  if (!opened.ok()) return opened.status();
  v1::OpenSessionResponse response;
  response.set_session(Number(opened->session));
  response.set_token(opened->token.data(), opened->token.size());
  response.set_protocol(kProtocolVersion);
  *response.mutable_server() = lists_.GetServerInfo();
  return response;
}

Result<v1::OpenSessionResponse> SessionVerbs::Join(const wire::OpenSessionRequest& request, const Peer& peer) {
  AB_RETURN_IF_ERROR(CheckHello(request));
  const auto session = broker_.SessionOf(Octets(request.join));
  const auto uid = session.ok() ? broker_.UidOf(*session) : Result<uint32_t>(session.status());
  if (!uid.ok() || *uid != peer.uid) return NotFound("no session has this token").Because("UNKNOWN_SESSION");
  v1::OpenSessionResponse response;
  response.set_session(Number(*session));
  response.set_protocol(kProtocolVersion);
  *response.mutable_server() = lists_.GetServerInfo();
  return response;
}

Result<v1::OpenSessionResponse> SessionVerbs::Continue(const wire::OpenSessionRequest& request, Peer peer) {
  AB_RETURN_IF_ERROR(CheckHello(request));
  AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
  Introduce(request, peer);
  const auto continued = broker_.ContinueSession(Octets(request.join), std::move(peer));
  if (continued.status().code() == Code::kNotFound) {
    return NotFound(
               "no session with this token waits for its client: a session ends with its stream, and one of an ended "
               "daemon ends ",
               config_.orphan_grace.get().count(), " ms after the next daemon started (orphan_grace)")
        .Because("UNKNOWN_SESSION");
  }
  if (continued.ok()) broker_.Resumed(continued->session);
  return AnswerOf(continued);
}

void SessionVerbs::GoOn(std::vector<SessionId> awaited) {
  ConfigurationChanged();  // it may have, between the two daemons; sweeps
  if (awaited.empty()) return;
  reclaimer_.PostAt(Clock::now() + config_.orphan_grace.get(), [this, awaited = std::move(awaited)] {
    for (const SessionId session : awaited) EndAwaited(session);
  });
}

void SessionVerbs::AwaitAgain(SessionId session) {
  broker_.AwaitAgain(session);
  reclaimer_.PostAt(Clock::now() + config_.orphan_grace.get(), [this, session] { EndAwaited(session); });
}

void SessionVerbs::EndAwaited(SessionId session) {
  if (broker_.StopAwaiting(session)) EndSession(session, EndCause::kKilled);
}

// A connection that closes looks the same for a process that ends it and for one that is killed. If the kernel does not
// tell at once how the process ended, the daemon looks again a little later. It does so for a bounded number of
// sessions, because it keeps their pidfds until then.
void SessionVerbs::CountEnd(SessionId session, EndCause cause) {
  constexpr std::chrono::milliseconds kUntilExplained{300};
  constexpr uint64_t kUnexplainedMost = 256;
  auto peer = broker_.PeerOf(session);
  if (!peer.ok() || cause != EndCause::kClean) return counts_.tallies.CountEnd(cause);
  const auto killed_by = [](const Peer& its) {
    return KilledBy(its.process == nullptr ? -1 : its.process->get(), its.process_id);
  };
  const auto signal = killed_by(*peer);
  if (signal || unexplained_.load() >= kUnexplainedMost) return CountClosed(session, *peer, signal.value_or(0));
  unexplained_.fetch_add(1);
  reclaimer_.PostAt(Clock::now() + kUntilExplained, [this, session, killed_by, peer = *std::move(peer)] {
    unexplained_.fetch_sub(1);
    CountClosed(session, peer, killed_by(peer).value_or(0));
  });
}

void SessionVerbs::CountClosed(SessionId session, const Peer& peer, int signal) {
  counts_.tallies.CountEnd(signal == 0 ? EndCause::kClean : EndCause::kKilled);
  if (signal != 0) counts_.log.SessionDied(session, peer, signal);
}

// The order matters: a request that begins to wait after the waiters were dropped must find that the session ended.
void SessionVerbs::EndSession(SessionId session, EndCause cause) {
  CountEnd(session, cause);
  for (const auto& direct : broker_.DirectChannelsOf(session)) channels_.EndDirectChannel(direct);
  std::vector<std::shared_ptr<const Claim>> claims;
  const std::vector<ChannelId> channels = broker_.EndSession(session, &claims);
  reclaimer_.sweeper().WatchHazards();
  line_.DropSession(session);
  publishes_.DropSession(session);
  tiers_.DropSession(session);
  for (const ChannelId channel : channels) ServeChannel(line_, broker_, channel);
  for (const auto& claim : claims) line_.NamePublished(claim->owner, claim->ns, claim->name);
  reclaimer_.sweeper().Soon();
  reclaimer_.sweeper().After(config_.orphan_grace);
  reclaimer_.heap().Freed();
}

Broker::Adopted SessionVerbs::ConfigurationChanged() {
  Broker::Adopted adopted = broker_.AdoptNamespaces();
  for (const SessionId session : adopted.without_right)
    cuts_.Cut(session, "it uses a namespace that it has no right to any more");
  reclaimer_.sweeper().Soon();
  return adopted;
}

Status SessionVerbs::CutSession(SessionId session, std::string_view why) {
  if (!broker_.UidOf(session).ok()) return NotFound("no session ", Number(session)).Because("SESSION_ENDED");
  cuts_.Cut(session, why);
  return Ok();
}

}  // namespace arraybridge::daemon
