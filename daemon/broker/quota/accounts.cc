#include "daemon/broker/quota/accounts.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/at_limit.h"
#include "daemon/broker/arenas/arena.h"
#include "daemon/broker/quota/namespace.h"
#include "daemon/broker/sessions/session.h"
#include "daemon/broker/shares/share.h"

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

std::vector<WithdrawnBytes>::iterator RowOf(std::vector<WithdrawnBytes>& rows, const Share& share) {
  return std::ranges::find_if(
      rows, [&](const WithdrawnBytes& each) { return each.ns == share.ns && each.device == share.arena->device(); });
}

void Add(std::vector<WithdrawnBytes>& rows, const Share& share) {
  const auto row = RowOf(rows, share);
  if (row == rows.end()) return rows.push_back({share.ns, share.arena->device(), share.size, 1});
  row->bytes += share.size;
  ++row->shares;
}

void Subtract(std::vector<WithdrawnBytes>& rows, const Share& share) {
  const auto row = RowOf(rows, share);
  AB_CHECK(row != rows.end());
  row->bytes -= share.size;
  if (--row->shares == 0) rows.erase(row);
}

template <class IsThere>
WithdrawnBytes Sum(const std::vector<WithdrawnBytes>& rows, const IsThere& is_there) {
  WithdrawnBytes sum;
  for (const WithdrawnBytes& row : rows) {
    if (!is_there(row)) continue;
    sum.bytes += row.bytes;
    sum.shares += row.shares;
  }
  return sum;
}

}  // namespace

Accounts::Accounts(const Config& config, const Backends& backends, const DirectChannelTable& direct_channels,
                   const Journal& journal)
    : config_(config),
      backends_(backends),
      direct_channels_(direct_channels),
      journal_(journal),
      descriptors_max_(DescriptorsMax(config)) {}

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
  if (open + more > most) return AtLimit("TOO_MANY_DESCRIPTORS", "descriptors_per_uid", most);
  return CheckStore(session, more);
}

// Opening a session does not come here: other limits bound sessions, and no user is refused one because of its arenas.
Status Accounts::CheckStore(const Session& session, uint64_t more) const {
  const uint32_t uid = session.peer.uid;
  if (!journal_.keeps() || config_.embedded || uid == 0 || uid == ::geteuid()) return Ok();
  const Account& account = *session.account;
  const uint64_t own = kEntriesOfSession * account.sessions + kEntriesOfQueue * account.queues +
                       account.memory->charges() + kEntriesOfDirectChannel * direct_channels_.CountOf(uid) +
                       account.hazard_pages + account.catalogues;
  const uint64_t chosen = config_.limits.descriptors_per_uid;
  const DescriptorStore::Usage usage = journal_.usage();
  const uint64_t left = usage.entries_max - std::min(usage.entries, usage.entries_max);
  const uint64_t most = chosen != 0 ? chosen : (own + left) / 2;
  if (own + more <= most) return Ok();
  return ResourceExhausted("user ", uid, " has ", own, " of the ", usage.entries_max,
                           " descriptors that are kept for the next daemon, and may not have more than it leaves to "
                           "others: withdraw what is not needed, or ask the operator to raise "
                           "limits.descriptors_per_uid, or the size of the store")
      .Because("TOO_MANY_DESCRIPTORS")
      .With("limit", "descriptors_per_uid")
      .With("value", std::to_string(most));
}

void Accounts::Pin(Account& account, Share& share) {
  Add(account.pinned, share);
  if (share.pinned_by++ == 0) Add(pinned_, share);
}

void Accounts::Unpin(Account& account, Share& share) {
  Subtract(account.pinned, share);
  if (--share.pinned_by == 0) Subtract(pinned_, share);
}

// Of a half of the quota, and of the device, a user may keep as much as it leaves, so that several users together leave
// the other half to those who write, and something to other readers. One share of any size may be kept, because a
// reader of large weights keeps them until it has their successor.
Status Accounts::CheckPinned(const Session& session, const Share& share) const {
  const std::vector<WithdrawnBytes>& own = session.account->pinned;
  const auto check = [&](uint64_t all, std::string_view where, const auto& is_there) -> Status {
    const WithdrawnBytes its = Sum(own, is_there);
    const uint64_t half = all / 2;
    const uint64_t chosen = config_.limits.pinned_bytes_per_uid;
    const uint64_t most = chosen != 0 ? chosen : half - std::min(half, Sum(pinned_, is_there).bytes);
    if (its.shares <= 1 || its.bytes <= most) return Ok();
    return ResourceExhausted("user ", session.peer.uid, " still holds ", its.shares, " arrays, ", its.bytes,
                             " bytes, that others have withdrawn or replaced ", where, ", where ", most,
                             " of such bytes are left (limits.pinned_bytes_per_uid): drop arrays that are not needed "
                             "any more, or copy them")
        .Because("PINNED_BYTES")
        .With("limit", "pinned_bytes_per_uid")
        .With("value", std::to_string(most));
  };
  const uint64_t of_maker = config_.limits.bytes_per_uid;
  const uint64_t quota = std::min(share.ns->quota().bytes(), of_maker != 0 ? of_maker : UINT64_MAX);
  AB_RETURN_IF_ERROR(check(quota, Concat("in namespace '", share.ns->name(), "'"),
                           [&](const WithdrawnBytes& row) { return row.ns == share.ns; }));
  const Device& device = share.arena->device();
  return check(backends_.CapacityBytes(device),
               device.type == kDeviceCpu ? "in host memory" : Concat("on ", device.uuid),
               [&](const WithdrawnBytes& row) { return row.device == device; });
}

}  // namespace arraybridge
