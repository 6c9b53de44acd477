// What one user has, and how many of the daemon's descriptors it may take: others find the rest.
#include <sys/resource.h>

#include "daemon/broker/state.h"

namespace arraybridge {
namespace {

// Of the process's descriptors one user may take one part of so many, unless the operator says otherwise.
constexpr uint64_t kPartOfDescriptors = 4;

}  // namespace

const std::shared_ptr<Account>& Broker::State::AccountOf(uint32_t uid) {
  std::shared_ptr<Account>& account = accounts[uid];
  if (account == nullptr) account = std::make_shared<Account>();
  return account;
}

void Broker::State::DropUnusedAccounts() {
  std::erase_if(accounts, [](const auto& entry) { return entry.second.use_count() == 1 && entry.second->unused(); });
}

// An embedded daemon has one user.
uint64_t Broker::State::DescriptorsMax(const Config& config) {
  rlimit limit{};
  if (config.embedded || ::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur / kPartOfDescriptors;
}

uint64_t Broker::State::DescriptorsOf(uint32_t uid, const Account& account) const {
  return kDescriptorsOfSession * account.sessions + kDescriptorsOfArena * account.memory->charges() +
         kDescriptorsOfDirectChannel * direct_channels.CountOf(uid) + account.unmapped_hold_pages + account.catalogues;
}

Status Broker::State::CheckDescriptors(const Session& session, uint64_t more) const {
  const uint64_t chosen = config.limits.descriptors_per_uid;
  const uint64_t most = chosen != 0 ? chosen : descriptors_max;
  if (DescriptorsOf(session.peer.uid, *session.account) + more <= most) return Ok();
  return AtLimit("TOO_MANY_DESCRIPTORS", "descriptors_per_uid", most);
}

}  // namespace arraybridge
