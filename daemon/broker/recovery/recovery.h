// SPDX-License-Identifier: Apache-2.0
// Recovery builds the broker's tables from the journal and the stored descriptors of the previous daemon. The order is:
// quotas, sessions, direct channels, arenas with their charges, channels, shares with their names, catalogues, hazard
// pages, leases, tickets, queues. The last step is what the previous daemon would have done by now.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/broker/objects/recovered.h"
#include "daemon/broker/recovery/channel_recovery.h"
#include "daemon/broker/recovery/reading.h"
#include "daemon/broker/verbs/state.h"
#include "daemon/broker/verbs/tiers/tiers.h"

namespace arraybridge::daemon {

class Broker::Recovery {
 public:
  Recovery(State& state, Records records, StoredFiles& files)
      : state_(state), records_(std::move(records)), files_(files), channels_(records_, files) {}

  Recovered Run(const std::vector<LiveClient>& clients) AB_EXCLUDES(state_.mutex);

 private:
  const Records::Table& Of(record::Kind kind) const { return records_.Of(kind); }
  // Null: it was not restored.
  Share* FindShare(uint64_t id) const;
  Journal& journal() { return state_.journal; }

  struct LostArena {
    uint32_t ns_uid = kSharedByUsers;
    std::string ns;
    std::string why = "its arena is not in the journal";
  };

  void Lose(ArenaId arena, std::string share, std::string why) AB_REQUIRES(state_.mutex);
  LostArena WhyLost(uint64_t arena) const;

  void Quotas() AB_REQUIRES(state_.mutex);
  void Sessions(const std::vector<LiveClient>& clients) AB_REQUIRES(state_.mutex);
  void Arenas() AB_REQUIRES(state_.mutex);
  Status RestoreArena(const record::Arena& its, Journal::Place place) AB_REQUIRES(state_.mutex);
  void Shares() AB_REQUIRES(state_.mutex);
  Status RestoreShare(const record::Share& its, Journal::Place place) AB_REQUIRES(state_.mutex);
  void Catalogues() AB_REQUIRES(state_.mutex);
  void HazardPages() AB_REQUIRES(state_.mutex);
  void Leases() AB_REQUIRES(state_.mutex);
  void Tickets() AB_REQUIRES(state_.mutex);
  void Queues() AB_REQUIRES(state_.mutex);
  void ReturnedRanges() AB_REQUIRES(state_.mutex);
  void Settle() AB_REQUIRES(state_.mutex);

  State& state_;
  Records records_;
  StoredFiles& files_;
  ChannelRecovery channels_;
  std::vector<Journal::Place> received_;  // records of leases that go after the records of their shares
  Recovered recovered_;
  std::vector<std::pair<uint64_t, Share*>> shares_;      // in the order of their ids
  std::unordered_map<uint64_t, LostArena> arenas_lost_;  // by id
  std::shared_ptr<const std::string> client_;            // of the last share: most have the same one
};

}  // namespace arraybridge::daemon
