// SPDX-License-Identifier: Apache-2.0
#include "daemon/take_over.h"

#include <fcntl.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <set>
#include <string>

#include "daemon/broker/tables/journal.h"
#include "daemon/memory/cuda/device_nodes.h"
#include "daemon/service/system/closer.h"
#include "daemon/service/telemetry/log.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {
namespace {

// Stores one descriptor for each device node that the driver has opened here, and drops those of other nodes. A
// duplicate of the driver's own would keep what belongs to this process, so the node is opened once more.
void StoreDeviceNodes(DescriptorStore& store, std::set<std::string> stored) {
  for (const uint64_t number : OpenDeviceNodes()) {
    const std::string name = StoredName(kStoredDeviceNode, number);
    if (stored.erase(name) > 0) continue;
    const std::string path = Concat(kDeviceNodes, number);
    const UniqueFd node(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (node.valid()) StoreOrWarn(&store, name, node.get(), path);
    if (!node.valid()) log::Warn("{} is not kept while the broker restarts: it cannot be opened", path);
  }
  for (const std::string& other : stored) store.Remove(other);
}

void Report(const Recovered& is, Clock::duration took) {
  log::Warn(
      {log::Topic::kRecovered,
       {{"life", std::to_string(is.life)},
        {"shares", std::to_string(is.shares)},
        {"sessions", std::to_string(is.session_count())},
        {"bytes", std::to_string(is.bytes)},
        {"lost_shares", std::to_string(is.lost_shares)}}},
      "life {} of this broker: took over {} shares, {} sessions and {} bytes in {} ms; lost {} shares; {} damaged "
      "records",
      is.life, is.shares, is.session_count(), is.bytes,
      std::chrono::duration_cast<std::chrono::milliseconds>(took).count(), is.lost_shares, is.damaged_records);
  for (const Recovered::Lost& lost : is.lost) {
    log::Warn("lost: share '{}' of namespace '{}': {}", lost.share, lost.ns, lost.why);
  }
}

}  // namespace

Result<TakenOver> TakeOver(Broker& broker, DescriptorStore* store, std::vector<StoredDescriptor> stored) {
  TakenOver taken;
  if (store == nullptr) return taken;
  std::vector<StoredDescriptor> files;
  std::vector<LiveClient> clients;
  std::set<std::string> nodes;
  for (StoredDescriptor& each : stored) {
    if (each.name[0] == kStoredDeviceNode) {
      nodes.insert(each.name);
      continue;
    }
    if (each.name[0] != kStoredLifeline) {
      files.push_back(std::move(each));
      continue;
    }
    Connection connection = IdentifyLifeline(std::move(each.fd));
    if (!connection.socket.valid()) {
      store->Remove(each.name);
      continue;
    }
    const SessionId session{std::strtoull(each.name.c_str() + 1, nullptr, 10)};
    clients.push_back({session, connection.peer});
    taken.lifelines.emplace_back(session, std::move(connection));
  }
  const auto begun = Clock::now();
  auto recovered = broker.Recover(*store, std::move(files), clients);
  const std::string reason(recovered.ok() ? "" : recovered.status().reason());
  if (reason == "STORE_FULL" || reason == "NO_JOURNAL") {
    for (auto& [session, connection] : taken.lifelines) {
      CloseAside(std::move(connection.socket));
      store->Remove(StoredName(kStoredLifeline, Number(session)));
    }
    taken.lifelines.clear();
    log::Error("if this daemon ends, everything that it holds is lost: {}", recovered.status().message());
    return taken;
  }
  if (!recovered.ok()) return recovered.status();
  taken.recovered = *std::move(recovered);
  const std::set<SessionId> sessions(taken.recovered.sessions.begin(), taken.recovered.sessions.end());
  std::erase_if(taken.lifelines, [&](auto& each) {
    if (sessions.contains(each.first)) return false;
    CloseAside(std::move(each.second.socket));
    store->Remove(StoredName(kStoredLifeline, Number(each.first)));
    return true;
  });
  StoreDeviceNodes(*store, std::move(nodes));
  if (taken.recovered.life > 1) Report(taken.recovered, Clock::now() - begun);
  return taken;
}

Life LifeOf(const Recovered& recovered, const ManagerStore* store, bool stores) {
  const bool is_first = store == nullptr || recovered.life == 1;
  return {recovered, static_cast<int64_t>(std::time(nullptr)), is_first ? std::string() : store->LastEnd(), store,
          stores || store == nullptr};
}

}  // namespace arraybridge::daemon
