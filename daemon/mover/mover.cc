// SPDX-License-Identifier: Apache-2.0
#include "daemon/mover/mover.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>

#include "proto/boundary/failpoint.h"

namespace arraybridge::daemon {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

// Of a keep whose share leaves memory while its file is written.
constexpr int kTriesMax = 4;

label::Label LabelOf(const ShareLabel& share, bool durable) {
  return {.size = share.size,
          .generation = share.facts->generation,
          .ns_uid = share.owner,
          .ns = share.facts->ns,
          .name = share.facts->name,
          .maker_uid = share.maker_uid,
          .durable = durable,
          .description = share.facts->description,
          .note = share.note,
          .rank = NumberOf(share.rank),
          .expires_ms = duration_cast<milliseconds>(share.expires.time_since_epoch()).count()};
}

// Whether the file is that of the share.
Status CheckIsOf(const OpenedFile& opened, const ShareLabel& share) {
  const label::Label& its = opened.label;
  const bool same = its.size == share.size && its.name == share.facts->name && its.ns == share.facts->ns &&
                    its.ns_uid == share.owner && its.generation == share.facts->generation;
  if (same) return Ok();
  return MakeStatus(Code::kDataLoss, "the file of the share is damaged: it belongs to another share")
      .Because("SHARE_LOST");
}

std::string NameOf(const TieredRow& row) {
  return Concat("share '", row.label.facts->name, "' of namespace '", row.label.facts->ns, "'");
}

}  // namespace

Mover::Found Mover::Begin() {
  Found found;
  std::set<std::string> used;
  std::vector<std::string> there = directory_->List();
  const std::set<std::string> names(there.begin(), there.end());
  for (const TieredRow& row : tiers_.All()) {
    if (names.contains(row.stored.file)) {
      used.insert(row.stored.file);
      auto file = directory_->Adopt(row.stored.file, row.label.maker_uid, row.label.size);
      if (row.stored.durable) file->Keep();
      tiers_.Own(row.place, std::move(file));
    } else if (!row.stored.file.empty()) {
      (row.in_memory ? found.unkept : found.lost).push_back(NameOf(row));
      tiers_.Lose(row.place, row.stored.file);
    }
  }
  std::erase_if(there, [&](const std::string& name) { return used.contains(name); });
  SortOut(there, &found);
  return found;
}

// Of several files of one name the newest share has it.
void Mover::SortOut(const std::vector<std::string>& names, Found* found) {
  const bool is_first = tiers_.is_first();
  std::vector<std::pair<uint64_t, std::string>> durable;  // by generation
  for (const std::string& name : names) {
    const auto opened = TierDirectory::IsOwnName(name)
                            ? OpenShare(*directory_, name)
                            : Result<OpenedFile>(FailedPrecondition("it has another program's name"));
    if (opened.ok() && opened->label.durable && is_first) {
      durable.emplace_back(opened->label.generation, name);
    } else if (opened.ok() || TierDirectory::IsPartName(name)) {
      directory_->Remove(name);
      ++found->removed;
    } else {
      found->strange.push_back(name);
    }
  }
  std::ranges::sort(durable, std::greater());
  ImportAll(durable, found);
}

void Mover::ImportAll(const std::vector<std::pair<uint64_t, std::string>>& durable, Found* found) {
  for (const auto& [generation, name] : durable) {
    const auto opened = OpenShare(*directory_, name);
    Status imported = opened.ok() ? Import(*opened, name) : opened.status();
    if (imported.ok()) {
      ++found->imported;
    } else if (imported.code() == Code::kAlreadyExists) {
      directory_->Remove(name);
    } else {
      found->strange.push_back(name);
    }
  }
}

Status Mover::Import(const OpenedFile& opened, const std::string& name) {
  const label::Label& its = opened.label;
  auto facts = std::make_shared<ShareFacts>();
  facts->ns = its.ns;
  facts->name = its.name;
  facts->generation = its.generation;
  facts->description = its.description;
  auto file = directory_->Adopt(name, its.maker_uid, its.size);
  file->Keep();
  const std::chrono::system_clock::time_point expires{milliseconds(its.expires_ms)};
  Status imported = tiers_.Import(
      {std::move(facts), its.ns_uid, its.maker_uid, its.size, std::string(its.note), RankOf(its.rank), expires},
      Stored{name, true, file});
  if (!imported.ok()) file->Forget();  // the caller decides
  return imported;
}

Result<Stored> Mover::Written(const Tiers::Looked& looked, bool durable) {
  const ShareLabel& label = looked.row.label;
  AB_ASSIGN_OR_RETURN(const auto file, directory_->Reserve(label.maker_uid, label.size));
  const Status written = WriteShare(*directory_, *file, LabelOf(label, durable), *looked.block, looked.offset);
  if (written.reason() == "DISK_FAILED") directory_->TurnOff(written.message());
  AB_RETURN_IF_ERROR(written);
  if (durable) file->Keep();
  return Stored{file->name(), durable, file};
}

Status Mover::MoveOut(const SharePlace& place) {
  AB_ASSIGN_OR_RETURN(const auto looked, tiers_.Look(place));
  if (!looked.row.in_memory) return Ok();
  AB_RETURN_IF_ERROR(looked.movable);
  if (!looked.row.stored.file.empty()) {
    const Status there = CheckFile(looked.row);
    if (there.ok()) return tiers_.MoveOut(place, looked.arena, Stored());
    if (there.code() != Code::kDataLoss) return there;
  }
  AB_ASSIGN_OR_RETURN(auto stored, Written(looked, looked.row.stored.durable));
  return tiers_.MoveOut(place, looked.arena, std::move(stored));
}

Status Mover::CheckFile(const TieredRow& row) {
  const auto opened = OpenShare(*directory_, row.stored.file);
  return Judged(row, opened.ok() ? CheckIsOf(*opened, row.label) : opened.status());
}

Status Mover::Pin(const SharePlace& place, Rank rank) {
  AB_ASSIGN_OR_RETURN(const auto looked, tiers_.Look(place));
  AB_RETURN_IF_ERROR(tiers_.SetRank(place, rank));
  const bool is_told = !looked.row.stored.durable || looked.row.label.rank == rank;
  return is_told ? Ok() : WriteDurable(place);
}

Status Mover::Keep(const SharePlace& place) {
  AB_ASSIGN_OR_RETURN(const auto looked, tiers_.Look(place));
  if (looked.row.stored.durable) {
    const Status there = CheckFile(looked.row);
    if (there.ok() || there.code() != Code::kDataLoss || !looked.row.in_memory) return there;
  }
  Status kept = WriteDurable(place);
  for (int tries = 1; kept.reason() == "SHARE_IN_USE" && tries < kTriesMax; ++tries) kept = WriteDurable(place);
  return kept;
}

Status Mover::WriteDurable(const SharePlace& place) {
  AB_ASSIGN_OR_RETURN(auto looked, tiers_.Look(place));
  if (!looked.row.in_memory) {
    AB_RETURN_IF_ERROR(MoveIn(place));
    AB_ASSIGN_OR_RETURN(looked, tiers_.Look(place));
  }
  if (looked.movable.reason() == "NOT_MOVABLE") return looked.movable;
  if (!looked.is_complete) {
    return FailedPrecondition("the bytes of ", NameOf(looked.row),
                              " are still being made: try again when they are complete")
        .Because("SHARE_IN_USE");
  }
  AB_ASSIGN_OR_RETURN(auto stored, Written(looked, true));
  return tiers_.Keep(place, looked.arena, std::move(stored));
}

Status Mover::MoveIn(const SharePlace& place) {
  AB_ASSIGN_OR_RETURN(const auto looked, tiers_.Look(place));
  if (looked.row.in_memory) return Ok();
  const TieredRow& row = looked.row;
  if (row.stored.file.empty())
    return MakeStatus(Code::kDataLoss, "the bytes of ", NameOf(row), " are lost").Because("SHARE_LOST");
  AB_ASSIGN_OR_RETURN(auto reserved, tiers_.Reserve(place));
  static_cast<void>(Failpoint("tier_memory_reserved"));
  const auto filled = [&]() -> Status {
    AB_ASSIGN_OR_RETURN(const auto opened, OpenShare(*directory_, row.stored.file));
    AB_RETURN_IF_ERROR(CheckIsOf(opened, row.label));
    return ReadShare(opened, *reserved.block());
  }();
  AB_RETURN_IF_ERROR(Judged(row, filled));
  // The first seal prevents new mappings that write, the second one writes.
  AB_RETURN_IF_ERROR(reserved.block()->Seal().status());
  AB_RETURN_IF_ERROR(reserved.block()->Seal().status());
  static_cast<void>(Failpoint("tier_memory_filled"));
  AB_ASSIGN_OR_RETURN(const auto left, tiers_.MoveIn(place, std::move(reserved)));
  static_cast<void>(Failpoint("tier_moved_in"));
  return Ok();
}

Status Mover::Verify(const SharePlace& place) {
  AB_ASSIGN_OR_RETURN(const auto looked, tiers_.Look(place));
  const TieredRow& row = looked.row;
  if (row.stored.file.empty()) {
    if (!row.in_memory)
      return MakeStatus(Code::kDataLoss, "the bytes of ", NameOf(row), " are lost").Because("SHARE_LOST");
    return FailedPrecondition(NameOf(row), " has no file: its bytes are in memory alone").Because("NO_FILE");
  }
  const auto checked = [&]() -> Status {
    AB_ASSIGN_OR_RETURN(const auto opened, OpenShare(*directory_, row.stored.file));
    AB_RETURN_IF_ERROR(CheckIsOf(opened, row.label));
    return CheckShare(opened);
  }();
  return Judged(row, checked);
}

Status Mover::Judged(const TieredRow& row, Status status) {
  if (status.code() != Code::kDataLoss) return status;
  const bool is_aside = directory_->SetAside(row.stored.file);
  const std::string aside = is_aside ? Concat("; what is left is ", row.stored.file, ".corrupt") : "";
  tiers_.Lose(row.place, row.stored.file);
  if (row.in_memory) {
    return MakeStatus(Code::kDataLoss, status.message(), aside, "; the bytes of ", NameOf(row),
                      " in memory are right: keep it again")
        .Because("FILE_DAMAGED");
  }
  return MakeStatus(Code::kDataLoss, "the bytes of ", NameOf(row), " are lost: ", status.message(), aside,
                    ": put the share again")
      .Because("SHARE_LOST");
}

}  // namespace arraybridge::daemon
