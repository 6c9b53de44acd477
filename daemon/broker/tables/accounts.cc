// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/accounts.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/at_limit.h"
#include "daemon/broker/objects/arena.h"
#include "daemon/broker/objects/namespace.h"
#include "daemon/broker/objects/session.h"
#include "daemon/broker/objects/share.h"

namespace arraybridge::daemon {
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

std::vector<LeasedBytes>::iterator RowOf(std::vector<LeasedBytes>& rows, const Share& share) {
  return std::ranges::find_if(rows, [&](const LeasedBytes& each) {
    return each.ns == share.ns && each.maker_uid == share.maker_uid && each.device == share.arena->device();
  });
}

bool IsLeasedBy(const Account& account, const Share& share) {
  return std::ranges::find(share.readers, &account, &Share::Reader::account) != share.readers.end();
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

void Accounts::DropUnused() {
  std::erase_if(accounts_, [](const auto& entry) { return IsUnused(entry.second); });
}

Status Accounts::CheckObjects(const Session& session, std::string_view reason, uint64_t more, uint64_t freed) const {
  const uint64_t has =
      session.account->object_bytes() + direct_channels_.CountOf(session.peer.uid) * object_bytes::kDirectChannel;
  const uint64_t most = config_.limits.object_bytes_per_uid;
  if (has - freed + more <= most) return Ok();
  return ByLimit(ResourceExhausted("what user ", session.peer.uid, " has takes ", has,
                                   " bytes of the broker's own memory, and this needs ", more,
                                   " more (limits.object_bytes_per_uid ", most,
                                   "): hold or publish fewer arrays at a time, or close channels"),
                 reason, "object_bytes_per_uid", most);
}

Status Accounts::CheckDescriptors(const Session& session, uint64_t descriptors, uint64_t entries) const {
  const Account& account = *session.account;
  const uint64_t direct = direct_channels_.CountOf(session.peer.uid);
  const uint64_t open = kDescriptorsOfSession * account.sessions + kDescriptorsOfArena * account.memory->charges() +
                        kDescriptorsOfDirectChannel * direct + account.unmapped_hazard_pages + account.catalogues;
  const uint64_t chosen = config_.limits.descriptors_per_uid;
  const uint64_t most = chosen != 0 ? chosen : descriptors_max_;
  if (open + descriptors > most) return AtLimit("TOO_MANY_DESCRIPTORS", "descriptors_per_uid", most);
  const uint64_t own = account.sessions + kEntriesOfQueue * account.queues + account.memory->charges() +
                       kEntriesOfDirectChannel * direct + account.hazard_pages + account.catalogues;
  return CheckStore(session.peer.uid, own, entries, true);
}

Status Accounts::CheckSessionEntry(uint32_t uid) const { return CheckStore(uid, At(uid).sessions, 1, false); }

Status Accounts::CheckStore(uint32_t uid, uint64_t own, uint64_t more, bool leaves_sessions) const {
  if (!journal_.keeps() || config_.embedded || uid == 0 || uid == ::geteuid()) return Ok();
  const DescriptorStore::Usage usage = journal_.usage();
  uint64_t taken = usage.entries;
  if (leaves_sessions) {
    uint64_t to_come = config_.limits.sessions;
    for (const auto& [each, account] : accounts_) to_come -= std::min(account->sessions, to_come);
    taken += std::min(to_come, usage.entries_max / 2);
  }
  const uint64_t left = usage.entries_max - std::min(taken, usage.entries_max);
  const uint64_t most = (own + left) / 2;
  if (own + more <= most) return Ok();
  return ByLimit(ResourceExhausted("user ", uid, " has ", own, " of the ", usage.entries_max,
                                   " descriptors that are kept for the next daemon, and gets no more of them than it "
                                   "leaves to others: withdraw what is not needed, or ask the operator for a larger "
                                   "store"),
                 "TOO_MANY_DESCRIPTORS", "descriptors_per_uid", most);
}

void Accounts::Lease(Account& account, const Share& share) {
  auto row = RowOf(account.leased, share);
  if (row == account.leased.end()) {
    row = account.leased.insert(row, {share.ns, share.arena->device(), share.maker_uid});
  }
  row->bytes += share.size;
  ++row->shares;
  if (share.withdrawn) ++row->withdrawn;
}

void Accounts::GiveBack(Account& account, const Share& share) {
  const auto row = RowOf(account.leased, share);
  AB_CHECK(row != account.leased.end());
  row->bytes -= share.size;
  if (share.withdrawn) --row->withdrawn;
  if (--row->shares == 0) account.leased.erase(row);
}

void Accounts::Withdraw(Account& account, const Share& share) { ++RowOf(account.leased, share)->withdrawn; }

// A reader may lease all that is published, and a reader of one share its successor. With shares that were withdrawn it
// may have half, so that a producer that replaces its arrays has the other half.
Status Accounts::CheckPinned(const Session& session, const Share& share, uint64_t requested) const {
  const Account& account = *session.account;
  const uint64_t more = requested + (IsLeasedBy(account, share) ? 0 : share.size);
  const auto check = [&](uint64_t all, std::string_view where, const auto& is_there) -> Status {
    LeasedBytes sum;
    for (const LeasedBytes& row : account.leased) {
      if (!is_there(row)) continue;
      sum.bytes += row.bytes;
      sum.shares += row.shares;
      sum.withdrawn += row.withdrawn;
    }
    const uint64_t chosen = config_.limits.pinned_bytes_per_uid;
    const uint64_t most = chosen != 0 ? chosen : all / 2;
    const bool is_successor = sum.shares == 1 && requested == 0;
    if (sum.withdrawn == 0 || is_successor || sum.bytes + more <= most) return Ok();
    return ByLimit(ResourceExhausted("user ", session.peer.uid, " holds ", sum.shares, " arrays, ", sum.bytes,
                                     " bytes, ", where, "; others have withdrawn or replaced ", sum.withdrawn,
                                     " of them, and a user who may only read may hold ", most,
                                     " bytes then (limits.pinned_bytes_per_uid): drop what was replaced, or copy it"),
                   "PINNED_BYTES", "pinned_bytes_per_uid", most);
  };
  AB_RETURN_IF_ERROR(check(share.ns->quota().bytes(), Concat("in namespace '", share.ns->name(), "'"),
                           [&](const LeasedBytes& row) { return row.ns == share.ns; }));
  if (const uint64_t of_maker = config_.limits.bytes_per_uid; of_maker != 0) {
    AB_RETURN_IF_ERROR(check(of_maker, Concat("of user ", share.maker_uid),
                             [&](const LeasedBytes& row) { return row.maker_uid == share.maker_uid; }));
  }
  const Device& device = share.arena->device();
  return check(backends_.CapacityBytes(device),
               device.type == kDeviceCpu ? "in host memory" : Concat("on ", device.uuid),
               [&](const LeasedBytes& row) { return row.device == device; });
}

}  // namespace arraybridge::daemon
