#include "daemon/broker/quota/accounts.h"

#include <sys/resource.h>

#include "daemon/at_limit.h"
#include "daemon/broker/sessions/session.h"

namespace arraybridge {
namespace {

// By default one user may take a quarter of the process's descriptors.
constexpr uint64_t kPartOfDescriptors = 4;

// An embedded daemon has one user.
uint64_t DescriptorsMax(const Config& config) {
  rlimit limit{};
  if (config.embedded || ::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur / kPartOfDescriptors;
}

// Nothing is counted, and no session has it.
bool IsUnused(const std::shared_ptr<Account>& account) { return account.use_count() == 1 && account->unused(); }

}  // namespace

Accounts::Accounts(const Config& config, const DirectChannelTable& direct_channels)
    : config_(config), direct_channels_(direct_channels), descriptors_max_(DescriptorsMax(config)) {}

const std::shared_ptr<Account>& Accounts::Of(uint32_t uid) {
  std::shared_ptr<Account>& account = accounts_[uid];
  if (account == nullptr) account = std::make_shared<Account>();
  return account;
}

bool Accounts::InUse(uint32_t uid) const {
  const auto found = accounts_.find(uid);
  return found != accounts_.end() && !IsUnused(found->second);
}

void Accounts::DropUnused() {
  std::erase_if(accounts_, [](const auto& entry) { return IsUnused(entry.second); });
}

Status Accounts::CheckDescriptors(const Session& session, uint64_t more) const {
  const Account& account = *session.account;
  const uint64_t open = kDescriptorsOfSession * account.sessions + kDescriptorsOfArena * account.memory->charges() +
                        kDescriptorsOfDirectChannel * direct_channels_.CountOf(session.peer.uid) +
                        account.unmapped_hazard_pages + account.catalogues;
  const uint64_t chosen = config_.limits.descriptors_per_uid;
  const uint64_t most = chosen != 0 ? chosen : descriptors_max_;
  if (open + more <= most) return Ok();
  return AtLimit("TOO_MANY_DESCRIPTORS", "descriptors_per_uid", most);
}

}  // namespace arraybridge
