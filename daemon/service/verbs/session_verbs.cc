#include "daemon/service/verbs/session_verbs.h"

#include <utility>

#include "daemon/service/verbs/channel_turns.h"
#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/messages.h"
#include "proto/boundary/frame.h"

namespace arraybridge {
Result<v1::OpenSessionResponse> SessionVerbs::OpenSession(const v1::OpenSessionRequest& request, Peer peer) {
  AB_RETURN_IF_ERROR(CheckHello(config_.limits, request));
  AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
  peer.client = request.client();
  peer.token = request.token();
  OfferHandles(request.capabilities(), here_, peer);
  if (config_.cuda_events) OfferEvents(request.capabilities(), peer);
  // A pid of another host would look like a local one.
  if (peer.process_id == 0 && !peer.is_remote()) peer.process_id = request.process_id();
  auto opened = broker_.OpenSession(std::move(peer));
  if (!opened.ok()) return opened.status();
  v1::OpenSessionResponse response;
  response.set_session(Number(opened->session));
  response.set_token(opened->token.data(), opened->token.size());
  response.set_protocol(kProtocolVersion);
  *response.mutable_server() = lists_.GetServerInfo();
  return response;
}

Result<v1::OpenSessionResponse> SessionVerbs::Join(const v1::OpenSessionRequest& request, const Peer& peer) {
  AB_RETURN_IF_ERROR(CheckHello(config_.limits, request));
  const auto session = broker_.SessionOf(Octets(request.join()));
  const auto uid = session.ok() ? broker_.UidOf(*session) : Result<uint32_t>(session.status());
  if (!uid.ok() || *uid != peer.uid) return NotFound("no session has this token").Because("UNKNOWN_SESSION");
  v1::OpenSessionResponse response;
  response.set_session(Number(*session));
  response.set_protocol(kProtocolVersion);
  *response.mutable_server() = lists_.GetServerInfo();
  return response;
}

// The order matters: a request that begins to wait after the session's waiters were dropped must find that the session
// has ended.
void SessionVerbs::EndSession(SessionId session, EndCause cause) {
  counts_.tallies.CountEnd(cause);
  for (const auto& direct : broker_.DirectChannelsOf(session)) channels_.EndDirectChannel(direct);
  const std::vector<ChannelId> channels = broker_.EndSession(session);
  reclaimer_.sweeper().WatchHazards();
  line_.DropSession(session);
  publishes_.DropSession(session);
  for (const ChannelId channel : channels) ServeChannel(line_, broker_, channel);
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

}  // namespace arraybridge
