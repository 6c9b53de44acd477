// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/telemetry/client_log.h"

#include <fmt/format.h>

#include <utility>

#include "daemon/service/telemetry/log.h"

namespace arraybridge::daemon {
namespace {

// "prep.py (process 712)".
std::string NameOf(const std::string& client, uint64_t process_id) {
  return fmt::format("{} (process {})", client.empty() ? "a client" : client, process_id);
}

log::About About(log::Topic topic, const Peer& peer, SessionId session) {
  return {topic,
          {{"session", std::to_string(Number(session))},
           {"uid", std::to_string(peer.uid)},
           {"process_id", std::to_string(peer.process_id)},
           {"client", peer.client}}};
}

std::string After(uint64_t dropped) { return dropped == 0 ? "" : fmt::format(" ({} more before)", dropped); }

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

void ClientLog::SessionDied(SessionId session, const Peer& peer, int signal) {
  const auto dropped = Admit(kDied);
  if (!dropped) return;
  log::Info(About(log::Topic::kSessionDied, peer, session),
            "{} of uid {} was killed by signal {}: its session {} has ended{}", NameOf(peer.client, peer.process_id),
            peer.uid, signal, Number(session), After(*dropped));
}

void ClientLog::QuotaRefused(SessionId session, const Status& refusal) {
  const auto dropped = Admit(kQuota);
  const auto peer = dropped ? broker_.PeerOf(session) : Result<Peer>(refusal);
  if (!peer.ok()) return;
  log::Info(About(log::Topic::kQuotaRefused, *peer, session), "{} of uid {} was refused memory: {}{}",
            NameOf(peer->client, peer->process_id), peer->uid, refusal.message(), After(*dropped));
}

void ClientLog::ChannelAwaited(SessionId session, ChannelEndId end, uint64_t seconds) {
  const auto dropped = Admit(kAwaited);
  if (!dropped) return;
  const auto peer = broker_.PeerOf(session);
  const auto channel = broker_.ChannelRowOf(session, end);
  if (!peer.ok() || !channel.ok()) return;
  const auto& [row, role] = *channel;
  log::Info(About(log::Topic::kChannelAwaited, *peer, session),
            "{} has waited for {} s {} the channel '{}' of namespace '{}', which has {} of {} arrays queued; {}{}",
            NameOf(peer->client, peer->process_id), seconds,
            role == ChannelRole::kReceiver ? "to receive from" : "for room in", row.name, row.ns, row.queued,
            row.capacity, OthersIn(row, role), After(*dropped));
}

std::optional<uint64_t> ClientLog::Admit(Kind kind) {
  const MutexLock lock(mutex_);
  return throttles_[kind].Admit(Clock::now(), log::LinesPerSecond());
}

}  // namespace arraybridge::daemon
