// SPDX-License-Identifier: Apache-2.0
// Examines whether the broker survives the kill of its daemon, and what the last one has cost.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "client/ctl/doctor/doctor.h"
#include "client/ctl/output/print.h"
#include "client/ctl/output/table.h"
#include "proto/boundary/handle.h"

namespace arraybridge::ctl {
namespace {

constexpr char kRestart[] = "restart";

Finding OnHolder(const v1::Life& life) {
  const std::string number = Concat("life ", life.number());
  switch (life.holder()) {
    case v1::HOLDER_KEEPER:
    case v1::HOLDER_SERVICE_MANAGER:
      return {kRestart, Health::kOk,
              Concat("a killed daemon is continued by the next one: ", HolderName(life), " keeps ",
                     life.store_entries(), " descriptors; this is ", number),
              ""};
    case v1::HOLDER_ENDED:
      return {kRestart, Health::kProblem,
              "the keeper has ended: the daemon serves on, but what it has is lost when it ends",
              "stop the broker when its shares are not needed, then start it with --keeper again"};
    case v1::HOLDER_FULL:
      return {kRestart, Health::kProblem,
              "what the broker has is lost when its daemon ends: when it started, the descriptor store was full",
              "see 'descriptor store', then restart the broker"};
    default:
      return {kRestart, Health::kNote, "what the broker has is lost when its daemon ends: no process keeps descriptors",
              "start it as arraybridged --keeper, or as a service with FileDescriptorStoreMax=8192 and "
              "Environment=FDSTORE=8192, as the shipped unit does"};
  }
}

bool IsHeld(const v1::Life& life) {
  return life.holder() == v1::HOLDER_KEEPER || life.holder() == v1::HOLDER_SERVICE_MANAGER;
}

// Memory that the driver frees with the process that allocated it.
bool DiesWithItsDaemon(const v1::DeviceInfo& device) {
  return std::ranges::find(device.kinds(), v1::HANDLE_KIND_CUDA_IPC) != device.kinds().end();
}

Finding OnLegacyMemory(const v1::DeviceInfo& device) {
  const bool has_other = std::ranges::find(device.kinds(), v1::HANDLE_KIND_CUDA_VMM) != device.kinds().end();
  return {Concat(kRestart, " of ", DeviceName(device.device())), Health::kNote,
          "shares as cuda_ipc are lost when the daemon ends: the driver frees that memory with the process",
          has_other ? "list only cuda_vmm in memory.cuda.kinds (man 5 arraybridged.toml)" : WhatToReadOfKinds()};
}

Finding OnStore(const v1::Life& life) {
  constexpr uint64_t kNearly = 90;  // percent
  const auto percent = [](uint64_t used, uint64_t most) { return most == 0 ? 0 : used * 100 / most; };
  const uint64_t used = std::max(percent(life.store_entries(), life.store_entries_max()),
                                 percent(life.store_name_bytes(), life.store_name_bytes_max()));
  Finding finding{"descriptor store", Health::kOk,
                  Concat(life.store_entries(), " of ", life.store_entries_max(), " entries, whose names have ",
                         life.store_name_bytes(), " of ", life.store_name_bytes_max(), " bytes; ",
                         life.store_refused_total(), " refused"),
                  ""};
  if (used < kNearly && life.store_refused_total() == 0) return finding;
  finding.health = used >= 100 ? Health::kProblem : Health::kNote;
  finding.text += used >= kNearly ? "; when it is full, new sessions and arenas are refused" : "";
  finding.mend = life.holder() == v1::HOLDER_KEEPER
                     ? "raise the keeper's limit of open files (up to 16512 are used), or end sessions and withdraw "
                       "shares that are not needed"
                     : "raise FileDescriptorStoreMax= and FDSTORE= in the unit (up to 8000 are used), or end sessions "
                       "and withdraw shares that are not needed";
  return finding;
}

Finding OnLosses(const v1::Life& life) {
  return {"losses", Health::kNote,
          Concat("when this life began, ", life.lost_shares(), " shares were lost and ", life.damaged_records(),
                 " records were damaged; the life before it ended by: ", life.last_end()),
          "arraybridgectl info --lost names the shares, with reasons"};
}

}  // namespace

std::vector<Finding> ExamineLife(const v1::GetServerInfoResponse& info) {
  if (!info.has_life()) return {};  // an older broker
  const v1::Life& life = info.life();
  std::vector<Finding> findings{OnHolder(life)};
  if (life.lost_shares() + life.damaged_records() > 0) findings.push_back(OnLosses(life));
  if (life.holder() == v1::HOLDER_FULL) findings.push_back(OnStore(life));
  if (!IsHeld(life)) return findings;
  for (const v1::DeviceInfo& device : info.devices()) {
    if (DiesWithItsDaemon(device)) findings.push_back(OnLegacyMemory(device));
  }
  findings.push_back(OnStore(life));
  return findings;
}

}  // namespace arraybridge::ctl
