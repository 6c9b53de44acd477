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
constexpr int kTriesAtOnce = 64;                 // of reads, before other requests for a read have their turn
constexpr uint64_t kRowBytes = 64;               // of a row in an answer, without its name

Status NoTier(const std::string& unopened) {
  if (!unopened.empty())
    return FailedPrecondition("no bytes of shares are moved to files: ", unopened).Because("NO_TIER");
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
    : VerbParts(parts),
      publishes_(publishes),
      tiers_(broker_),
      moves_(config_.limits),
      rooms_(tiers_),
      upkeep_(tiers_, config_.tiers, 2 * config_.arena_idle) {
  if (!config_.tiers.directory.empty()) Begin();
}

void TierVerbs::Begin() {
  auto directory = TierDirectory::Open(config_.tiers);
  if (!directory.ok()) {
    unopened_ = directory.status().message();
    return log::Error("no bytes of shares are moved to files: {}", unopened_);
  }
  (*directory)->WhenDropped([this] { spiller_.Post([this] { mover_->directory().RemoveDropped(); }); });
  mover_ = std::make_unique<CountedMover>(tiers_, *std::move(directory));
  const Mover::Found found = mover_->Begin();
  for (const std::string& share : found.lost) log::Warn("lost: {}: its file is gone", share);
  for (const std::string& share : found.unkept) log::Warn("{} is kept no more: its file is gone: keep it again", share);
  for (const std::string& name : found.strange) {
    log::Warn(
        "the directory of [tiers] has a file that this broker has not written, or that is damaged: '{}' is left alone",
        name);
  }
  if (found.imported > 0) log::Info("found {} durable shares of an earlier broker", found.imported);
  if (found.removed > 0) log::Info("removed {} files of shares that are gone", found.removed);
  if (upkeep_.is_wanted()) PlanUpkeep(Upkeep::kPeriod);
}

void TierVerbs::Stop() {
  moves_.Stop();
  reader_.Stop();
  spiller_.Stop();
  other_.Stop();
  if (mover_ != nullptr) mover_->directory().End();
}

Status TierVerbs::CheckTier(const Caller& caller, const wire::TierRequest& request) const {
  if (!caller.hears) return InvalidArgument("Tier must want an answer");
  AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
  AB_RETURN_IF_ERROR(CheckNamespace(config_.limits, request.namespace_));
  if (request.pin < wire::TierRequest::Pin::kNone || request.pin > wire::TierRequest::Pin::kHard) {
    return InvalidArgument("Tier has no pin ", static_cast<int>(request.pin));
  }
  if (request.priority < -kPriorityMax || request.priority > kPriorityMax) {
    return InvalidArgument("a priority is a number from ", -kPriorityMax, " to ", kPriorityMax, ", not ",
                           request.priority);
  }
  const bool is_known = request.action >= Action::kList && request.action <= Action::kPin;
  if (!is_known) return InvalidArgument("Tier has no action ", static_cast<int>(request.action));
  return mover_ == nullptr && request.action != Action::kList ? NoTier(unopened_) : Ok();
}

Served TierVerbs::Tier(const Caller& caller, const wire::TierRequest& request, std::string_view bytes,
                       const Later& later) {
  if (const Status checked = CheckTier(caller, request); !checked.ok()) return {checked};
  publishes_.ServeQueued(caller.session, request.namespace_);
  if (request.action == Action::kList) return {List(caller, request)};
  const bool writes =
      request.action == Action::kMoveOut || request.action == Action::kKeep || request.action == Action::kPin;
  auto place = tiers_.Find(caller.session, request.namespace_, {.name = request.name, .generation = request.generation},
                           writes ? Right::kWrite : Right::kRead);
  if (!place.ok()) return {place.status()};
  auto waits = admission_.WaiterOf(caller, bytes.size());
  if (!waits.ok()) return {waits.status()};
  const Reply reply = later();
  Waiter waiter = *std::move(waits);  // without a deadline: it waits only for its turn
  const Wish wish{
      *std::move(place), request.action, {static_cast<Pin>(request.pin), static_cast<int32_t>(request.priority)}};
  waiter.retry = [this, reply, wish](bool) -> Deliver {
    if (wish.action == Action::kMoveIn) ServeFetches();  // processes wait for those
    return Delivery(reply, Move(wish));
  };
  waiter.expire = [this, reply] { reply(admission_.CheckNotDraining()); };
  const Status in_line = Enqueue(NamespaceNameOf(request.namespace_), request.action, std::move(waiter));
  if (!in_line.ok()) reply(in_line);
  return {};
}

// Reads have lines of their own, so that they do not wait for other moves of their namespace.
Status TierVerbs::Enqueue(std::string_view ns, Action action, Waiter waiter) {
  const uint32_t uid = waiter.uid;
  const bool reads = action == Action::kMoveIn;
  waiter.lane = reads ? Lane::kShort : Lane::kLong;
  AB_RETURN_IF_ERROR(moves_.WaitForMemory(uid, Concat(reads ? "read " : "other ", ns), std::move(waiter)).status());
  reads ? ServeReads() : ServeOthers();
  return Ok();
}

void TierVerbs::ServeReads() {
  if (reads_posted_.exchange(true)) return;
  reader_.Post([this] {
    reads_posted_.store(false);
    ServeFetches();
    moves_.ServeMemory(Lane::kShort);
  });
}

void TierVerbs::ServeOthers() {
  if (others_posted_.exchange(true)) return;
  other_.Post([this] {
    others_posted_.store(false);
    moves_.ServeMemory(Lane::kLong);
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

Status TierVerbs::Moved(const Wish& wish) {
  switch (wish.action) {
    case Action::kMoveOut:
      return mover_->MoveOut(wish.place);
    case Action::kMoveIn:
      return mover_->MoveIn(wish.place);
    case Action::kKeep:
      return mover_->Keep(wish.place);
    case Action::kPin:
      return mover_->Pin(wish.place, wish.rank);
    default:
      return mover_->Verify(wish.place);
  }
}

Result<Answer> TierVerbs::Move(const Wish& wish) {
  AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
  const SharePlace& place = wish.place;
  const Status moved = Moved(wish);
  reclaimer_.Reclaim();  // also if it failed half-way
  AB_RETURN_IF_ERROR(moved);
  AB_ASSIGN_OR_RETURN(const auto looked, tiers_.Look(place));
  if (wish.action == Action::kMoveIn) Announce(place, looked.row.label.facts->name);
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
  AB_RETURN_IF_ERROR(
      fetches_.Add({*place, std::string(ShareIn(refusal)), Clock::now() + config_.limits.request_timeout_max.get()}));
  ServeReads();
  return refusal;
}

bool TierVerbs::Read(const Fetches::Fetch& fetch) {
  Status moved = mover_->MoveIn(fetch.place);
  if (moved.code() == Code::kResourceExhausted && Clock::now() < fetch.until) {
    const auto looked = tiers_.Look(fetch.place);
    if (!looked.ok()) return fetches_.Forget(fetch.place), true;
    rooms_.Want(fetch.place.owner, fetch.place.ns, looked->row.label.size, moved);
    ServeRooms();
    return false;
  }
  if (!moved.ok()) log::Warn("share '{}' cannot be read from its file: {}", fetch.name, moved.message());
  reclaimer_.Reclaim();
  fetches_.Fail(fetch.place, std::move(moved));
  Announce(fetch.place, fetch.name);
  fetches_.Forget(fetch.place);
  return true;
}

void TierVerbs::ServeFetches() {
  std::vector<SharePlace> waiting;
  int tries = 0;
  for (; tries < kTriesAtOnce; ++tries) {
    const auto next = fetches_.Next();
    if (!next) break;
    if (!Read(*next)) waiting.push_back(next->place);
  }
  const bool waits = !waiting.empty();
  // Without any progress the others, too, wait for memory: then there is a pause.
  const bool has_more = !fetches_.empty() && waiting.size() < static_cast<size_t>(tries);
  for (const SharePlace& place : waiting) fetches_.PutBack(place);
  if (has_more) ServeReads();
  if (!waits || std::exchange(retry_planned_, true)) return;
  reader_.PostAt(Clock::now() + kRetry, [this] {
    retry_planned_ = false;
    ServeReads();
  });
}

void TierVerbs::MakeRoom(const Caller& caller, std::string_view ns, uint64_t bytes, const Status& refusal) {
  if (mover_ == nullptr || !mover_->directory().off().empty()) return;
  const auto owner = broker_.OwnerOf(caller.session, ns, Right::kWrite);
  if (!owner.ok()) return;
  rooms_.Want(*owner, NamespaceNameOf(ns), bytes, refusal);
  ServeRooms();
}

// The memory is the makers' again, or the device's when those give it back. A request that is refused once more asks
// for room once more.
void TierVerbs::ServeRooms() {
  if (rooms_posted_.exchange(true)) return;
  spiller_.Post([this] {
    rooms_posted_.store(false);
    rooms_.Serve(*mover_, [this] { Freed(); });
  });
}

void TierVerbs::Freed() {
  reclaimer_.Reclaim();
  reclaimer_.ServeMemorySoon(Lane::kShort);
  reclaimer_.ServeMemorySoon(Lane::kLong);
}

void TierVerbs::PlanUpkeep(std::chrono::milliseconds wait) {
  other_.PostAt(Clock::now() + wait, [this] {
    const bool has_more = upkeep_.Keep(*mover_);
    spiller_.Post([this] { upkeep_.MakeRoom(rooms_, *mover_, [this] { Freed(); }); });
    PlanUpkeep(has_more ? std::chrono::milliseconds(0) : Upkeep::kPeriod);
  });
}

}  // namespace arraybridge::daemon
