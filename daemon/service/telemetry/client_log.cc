// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/telemetry/client_log.h"

#include <fmt/format.h>

#include <utility>

#include "daemon/service/telemetry/log.h"

namespace arraybridge {
namespace {

// "prep.py (process 712)".
std::string NameOf(const std::string& client, uint64_t process_id) {
  return fmt::format("{} (process {})", client.empty() ? "a client" : client, process_id);
}

// The open ends on the other side: "receivers: infer.py (process 713)".
std::string OthersIn(const ChannelRow& channel, ChannelRole role) {
  constexpr size_t kNamed = 4;
  std::string names;
  size_t count = 0;
  for (const ChannelRow::End& end : channel.ends) {
    if (end.role == role || end.closed.count() != 0 || ++count > kNamed) continue;
    names += (names.empty() ? "" : ", ") + NameOf(end.client == nullptr ? std::string() : *end.client, end.process_id);
  }
  if (count > kNamed) names += fmt::format(" and {} more", count - kNamed);
  return fmt::format("{}: {}", role == ChannelRole::kReceiver ? "senders" : "receivers",
                     names.empty() ? "none" : names);
}

}  // namespace

void ClientLog::SessionDied(SessionId session, const Peer& peer) {
  Write(kDied, log::Topic::kSessionDied, peer, session,
        fmt::format("{} of uid {} was killed or failed: its session {} has ended", NameOf(peer.client, peer.process_id),
                    peer.uid, Number(session)));
}

void ClientLog::QuotaRefused(SessionId session, const Status& refusal) {
  const auto peer = broker_.PeerOf(session);
  if (!peer.ok()) return;
  Write(kQuota, log::Topic::kQuotaRefused, *peer, session,
        fmt::format("{} of uid {} was refused memory: {}", NameOf(peer->client, peer->process_id), peer->uid,
                    refusal.message()));
}

void ClientLog::ChannelAwaited(SessionId session, ChannelEndId end, uint64_t seconds) {
  const auto peer = broker_.PeerOf(session);
  const auto channel = broker_.ChannelRowOf(session, end);
  if (!peer.ok() || !channel.ok()) return;
  const auto [row, role] = *channel;
  const bool receives = role == ChannelRole::kReceiver;
  Write(
      kAwaited, log::Topic::kChannelAwaited, *peer, session,
      fmt::format("{} has waited for {} s {} the channel '{}' of namespace '{}', which has {} of {} arrays queued; {}",
                  NameOf(peer->client, peer->process_id), seconds, receives ? "to receive from" : "for room in",
                  row.name, row.ns, row.queued, row.capacity, OthersIn(row, role)));
}

void ClientLog::Write(Kind kind, log::Topic topic, const Peer& peer, SessionId session, const std::string& text) {
  std::optional<uint64_t> dropped;
  {
    const MutexLock lock(mutex_);
    dropped = throttles_[kind].Admit(Clock::now(), log::LinesPerSecond());
  }
  if (!dropped) return;
  const log::About about(topic, {{"session", std::to_string(Number(session))},
                                 {"uid", std::to_string(peer.uid)},
                                 {"process_id", std::to_string(peer.process_id)},
                                 {"client", peer.client}});
  if (*dropped == 0) return log::Info(about, "{}", text);
  log::Info(about, "{} ({} more before)", text, *dropped);
}

}  // namespace arraybridge
