// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/tiers/tier_verbs.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/service/telemetry/log.h"
#include "daemon/service/wire/message_limits.h"

namespace arraybridge::daemon {
namespace {

using Action = wire::TierRequest::Action;

constexpr std::chrono::milliseconds kRetry{50};  // between tries to get memory for bytes that an acquire waits for
constexpr uint64_t kRowBytes = 64;               // of a row in an answer, without its name

Status NoTier() {
  return FailedPrecondition(
             "this broker keeps bytes of shares in memory alone: set tiers.directory in its configuration")
      .Because("NO_TIER");
}

wire::TieredShare RowOf(const TieredRow& row) {
  return {.name = row.label.facts->name,
          .generation = row.label.facts->generation,
          .bytes = row.label.size,
          .in_memory = row.in_memory,
          .durable = row.stored.durable,
          .lost = !row.in_memory && row.stored.file.empty()};
}

std::string_view ShareIn(const Status& refusal) {
  for (const auto& [key, value] : refusal.metadata()) {
    if (key == "share") return value;
  }
  return {};
}

}  // namespace

TierVerbs::TierVerbs(const VerbParts& parts, PublishVerbs& publishes)
    : VerbParts(parts), publishes_(publishes), tiers_(broker_), moves_(config_.limits), worker_("ab-mover") {
  if (!config_.tiers.directory.empty()) Begin();
}

void TierVerbs::Begin() {
  auto directory = TierDirectory::Open(config_.tiers);
  if (!directory.ok()) {
    unopened_ = directory.status().message();
    return log::Error("no bytes of shares are moved to files: {}", unopened_);
  }
  (*directory)->WhenDropped([this] { worker_.Post([this] { mover_->directory().RemoveDropped(); }); });
  mover_ = std::make_unique<CountedMover>(tiers_, *std::move(directory));
  const Mover::Found found = mover_->Begin();
  for (const std::string& share : found.lost) log::Warn("lost: {}: its file is gone", share);
  for (const std::string& name : found.strange) {
    log::Warn(
        "the directory of [tiers] has a file that this broker has not written, or that is damaged: '{}' is left alone",
        name);
  }
  if (found.imported > 0) log::Info("found {} durable shares of an earlier broker", found.imported);
  if (found.removed > 0) log::Info("removed {} files of shares that are gone", found.removed);
}

void TierVerbs::Stop() {
  moves_.Stop();
  worker_.Stop();
  if (mover_ != nullptr) mover_->directory().End();
}

Status TierVerbs::CheckTier(const Caller& caller, const wire::TierRequest& request) const {
  if (!caller.hears) return InvalidArgument("Tier must want an answer");
  AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
  AB_RETURN_IF_ERROR(CheckNamespace(config_.limits, request.namespace_));
  const bool is_known = request.action >= Action::kList && request.action <= Action::kVerify;
  if (!is_known) return InvalidArgument("Tier has no action ", static_cast<int>(request.action));
  return mover_ == nullptr && request.action != Action::kList ? NoTier() : Ok();
}

Served TierVerbs::Tier(const Caller& caller, const wire::TierRequest& request, std::string_view bytes,
                       const Later& later) {
  if (const Status checked = CheckTier(caller, request); !checked.ok()) return {checked};
  publishes_.ServeQueued(caller.session, request.namespace_);
  if (request.action == Action::kList) return {List(caller, request)};
  const bool writes = request.action == Action::kMoveOut || request.action == Action::kKeep;
  auto place = tiers_.Find(caller.session, request.namespace_, {.name = request.name, .generation = request.generation},
                           writes ? Right::kWrite : Right::kRead);
  if (!place.ok()) return {place.status()};
  auto waits = admission_.WaiterOf(caller, bytes.size());
  if (!waits.ok()) return {waits.status()};
  const Reply reply = later();
  Waiter waiter = *std::move(waits);  // without a deadline: it waits only for its turn
  const uint32_t uid = waiter.uid;
  waiter.retry = [this, reply, action = request.action, place = *std::move(place)](bool) -> Deliver {
    return Delivery(reply, Move(place, action));
  };
  waiter.expire = [this, reply] { reply(admission_.CheckNotDraining()); };
  const auto in_line = moves_.WaitForMemory(uid, NamespaceNameOf(request.namespace_), std::move(waiter));
  if (!in_line.ok()) return reply(in_line.status()), Served{};
  Serve();
  return {};
}

void TierVerbs::Serve() {
  if (posted_.exchange(true)) return;
  worker_.Post([this] {
    posted_.store(false);
    moves_.ServeMemory();
    ServeFetches();
    ServeRoom();
  });
}

// A part of the rows of a namespace, or the row of one share.
Result<Tiers::Listed> TierVerbs::Listed(const Caller& caller, const wire::TierRequest& request) const {
  if (request.name.empty()) return tiers_.List(caller.session, request.namespace_, request.after);
  const ShareKey key{.name = request.name, .generation = request.generation};
  AB_ASSIGN_OR_RETURN(const auto place, tiers_.Find(caller.session, request.namespace_, key, Right::kRead));
  AB_ASSIGN_OR_RETURN(auto looked, tiers_.Look(place));
  Tiers::Listed listed;
  const bool has_file = !looked.row.in_memory || !looked.row.stored.file.empty();
  if (has_file) listed.rows.push_back(std::move(looked.row));
  return listed;
}

Result<Answer> TierVerbs::List(const Caller& caller, const wire::TierRequest& request) const {
  wire::TierResponse response;
  const TierNumbers tier = numbers();
  response.off = tier.off;
  response.disk_bytes = tier.bytes;
  response.disk_bytes_max = tier.bytes_max;
  AB_ASSIGN_OR_RETURN(const auto listed, Listed(caller, request));
  response.next = listed.next;
  uint64_t bytes = tier.off.size() + kRowBytes;
  for (size_t i = 0; i < listed.rows.size(); ++i) {
    bytes += listed.rows[i].label.facts->name.size() + kRowBytes;
    if (i > 0 && bytes > AnswerBytesMax(config_.limits)) {
      response.next = Number(listed.rows[i - 1].place.share);
      break;
    }
    response.shares.push_back(RowOf(listed.rows[i]));
  }
  return AnswerOf(response);
}

Result<Answer> TierVerbs::Move(const SharePlace& place, Action action) {
  AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
  const Status moved = action == Action::kMoveOut  ? mover_->MoveOut(place)
                       : action == Action::kMoveIn ? mover_->MoveIn(place)
                       : action == Action::kKeep   ? mover_->Keep(place)
                                                   : mover_->Verify(place);
  reclaimer_.Reclaim();  // also if it failed half-way
  AB_RETURN_IF_ERROR(moved);
  AB_ASSIGN_OR_RETURN(const auto looked, tiers_.Look(place));
  if (action == Action::kMoveIn) Announce(place, looked.row.label.facts->name);
  wire::TierResponse response;
  response.shares.push_back(RowOf(looked.row));
  return AnswerOf(response);
}

void TierVerbs::Announce(const SharePlace& place, std::string_view name) {
  if (line_.waits_for_names()) line_.NamePublished(place.owner, place.ns, name);
}

Status TierVerbs::Fetch(SessionId session, std::string_view ns, Status refusal) {
  if (refusal.reason() != "SHARE_AWAY") return refusal;
  if (mover_ == nullptr) {
    return Unavailable("share '", ShareIn(refusal),
                       "' is in a file of the directory that this broker used before: set "
                       "tiers.directory in its configuration, and restart it")
        .Because("NO_TIER");
  }
  const auto place = tiers_.Find(session, ns, {.name = ShareIn(refusal)}, Right::kRead);
  if (!place.ok()) return refusal;
  {
    const MutexLock lock(mutex_);
    Fetching& fetch = fetches_[*place];
    if (!fetch.failed.ok()) return fetch.failed;
    fetch.name = ShareIn(refusal);
    fetch.until = Clock::now() + config_.limits.request_timeout_max.get();
  }
  Serve();
  return refusal;
}

void TierVerbs::ServeFetches() {
  std::vector<std::pair<SharePlace, Fetching>> all;
  {
    const MutexLock lock(mutex_);
    all.assign(fetches_.begin(), fetches_.end());
  }
  bool again = false;
  for (auto& [place, fetch] : all) {
    Status moved = mover_->MoveIn(place);
    const bool waits = moved.code() == Code::kResourceExhausted && Clock::now() < fetch.until;
    again = again || waits;
    if (waits) {
      const auto looked = tiers_.Look(place);
      if (looked.ok()) WantRoom(place.owner, place.ns, looked->row.label.size, moved);
      continue;
    }
    if (!moved.ok()) log::Warn("share '{}' cannot be read from its file: {}", fetch.name, moved.message());
    reclaimer_.Reclaim();
    {
      const MutexLock lock(mutex_);
      fetches_[place].failed = std::move(moved);
    }
    Announce(place, fetch.name);
    const MutexLock lock(mutex_);
    fetches_.erase(place);
  }
  if (again) {
    worker_.PostAt(Clock::now() + kRetry, [this] { Serve(); });
  }
}

void TierVerbs::MakeRoom(const Caller& caller, std::string_view ns, uint64_t bytes, const Status& refusal) {
  if (mover_ == nullptr || !mover_->directory().off().empty()) return;
  const auto owner = broker_.OwnerOf(caller.session, ns, Right::kWrite);
  if (!owner.ok()) return;
  WantRoom(*owner, NamespaceNameOf(ns), bytes, refusal);
  Serve();
}

void TierVerbs::WantRoom(uint32_t owner, std::string_view ns, uint64_t bytes, const Status& refusal) {
  if (refusal.reason() != "DEVICE_FULL" && refusal.reason() != "QUOTA_EXCEEDED") return;
  const bool of_namespace = refusal.reason() == "QUOTA_EXCEEDED";
  const MutexLock lock(mutex_);
  uint64_t& wanted = room_[{owner, of_namespace ? std::string(ns) : std::string()}];
  wanted = std::max(wanted, bytes);
}

uint64_t TierVerbs::MoveOut(const NamespaceKey& of, uint64_t bytes) {
  std::vector<Tiers::Candidate> all;
  std::optional<SharePlace> after;
  do {
    auto some = tiers_.Candidates(of, &after);
    all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  } while (after);
  std::ranges::sort(all, {}, &Tiers::Candidate::read);
  uint64_t moved = 0;
  for (const Tiers::Candidate& each : all) {
    if (moved >= bytes) break;
    if (mover_->MoveOut(each.place).ok()) moved += each.bytes;
  }
  return moved;
}

// The memory is the makers' again, or the device's when those give it back. A request that is refused once more asks
// for room once more.
void TierVerbs::ServeRoom() {
  std::map<std::pair<uint32_t, std::string>, uint64_t> room;
  {
    const MutexLock lock(mutex_);
    room.swap(room_);
  }
  uint64_t moved = 0;
  for (const auto& [of, bytes] : room) moved += MoveOut({of.first, of.second}, bytes);
  if (moved == 0) return;
  reclaimer_.Reclaim();
  reclaimer_.ServeMemorySoon(Lane::kShort);
  reclaimer_.ServeMemorySoon(Lane::kLong);
}

}  // namespace arraybridge::daemon
