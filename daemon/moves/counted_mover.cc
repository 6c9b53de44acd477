// SPDX-License-Identifier: Apache-2.0
#include "daemon/moves/counted_mover.h"

namespace arraybridge::daemon {
namespace {

// Whether there is nothing to move.
bool IsThere(MoveKind kind, const TieredRow& row) {
  if (kind == MoveKind::kKeep) return row.stored.durable;
  return row.in_memory == (kind == MoveKind::kIn);
}

}  // namespace

TierNumbers CountedMover::numbers() const {
  TierNumbers numbers{.off = directory().off(),
                      .bytes = directory().used(),
                      .bytes_max = directory().bytes_max(),
                      .files = directory().files(),
                      .damaged_total = damaged_.load(),
                      .moves = {}};
  for (size_t i = 0; i < counts_.size(); ++i) {
    const Counts& counts = counts_[i];
    numbers.moves[i] = {.done = counts.done.load(),
                        .refused = counts.refused.load(),
                        .failed = counts.failed.load(),
                        .bytes = counts.bytes.load(),
                        .took = std::chrono::nanoseconds(counts.nanoseconds.load())};
  }
  return numbers;
}

Mover::Found CountedMover::Begin() {
  Mover::Found found = mover_.Begin();
  damaged_.fetch_add(found.lost.size());
  return found;
}

Status CountedMover::Verify(const SharePlace& place) {
  const auto looked = tiers_.Look(place);
  Status verified = mover_.Verify(place);
  if (looked.ok()) CountDamage(looked->row, verified);
  return verified;
}

Status CountedMover::Counted(MoveKind kind, const SharePlace& place, Status (Mover::*move)(const SharePlace&)) {
  const auto looked = tiers_.Look(place);
  if (!looked.ok() || IsThere(kind, looked->row)) return (mover_.*move)(place);
  const auto began = std::chrono::steady_clock::now();
  Status moved = (mover_.*move)(place);
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - began;
  Counts& counts = counts_[static_cast<size_t>(kind)];
  if (moved.ok()) {
    counts.done.fetch_add(1);
    counts.bytes.fetch_add(looked->row.label.size);
    counts.nanoseconds.fetch_add(static_cast<uint64_t>(took.count()));
    return moved;
  }
  const bool waits = kind == MoveKind::kIn && moved.code() == Code::kResourceExhausted;
  const bool failed = moved.reason() == "DISK_FAILED" || moved.code() == Code::kDataLoss;
  if (!waits) (failed ? counts.failed : counts.refused).fetch_add(1);
  CountDamage(looked->row, moved);
  return moved;
}

void CountedMover::CountDamage(const TieredRow& row, const Status& status) {
  if (status.code() == Code::kDataLoss && !row.stored.file.empty()) damaged_.fetch_add(1);
}

}  // namespace arraybridge::daemon
