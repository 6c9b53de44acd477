#include "daemon/broker/quota/pins.h"

#include <algorithm>

#include "daemon/broker/arenas/arena.h"
#include "daemon/broker/shares/share.h"

namespace arraybridge {
namespace {

PinnedBytes RowFor(const Share& share) { return {share.arena->device(), share.ns, share.maker_uid, share.size, 1}; }

bool IsOfOneRow(const PinnedBytes& one, const PinnedBytes& other) {
  return one.ns == other.ns && one.maker_uid == other.maker_uid && one.device == other.device;
}

}  // namespace

bool PinnedIn::Includes(const PinnedBytes& row) const {
  if (device && *device != row.device) return false;
  if (ns != nullptr && ns != row.ns) return false;
  if (maker_uid && *maker_uid != row.maker_uid) return false;
  return !not_made_by || *not_made_by != row.maker_uid;
}

void Pins::Add(const PinnedBytes& more) {
  const auto found = std::ranges::find_if(rows_, [&](const PinnedBytes& row) { return IsOfOneRow(row, more); });
  if (found == rows_.end()) return rows_.push_back(more);
  found->bytes += more.bytes;
  found->shares += more.shares;
}

PinnedBytes Pins::Drop(const PinnedBytes& less) {
  PinnedBytes dropped = less;
  const auto found = std::ranges::find_if(rows_, [&](const PinnedBytes& row) { return IsOfOneRow(row, less); });
  dropped.bytes = found == rows_.end() ? 0 : std::min(found->bytes, less.bytes);
  dropped.shares = found == rows_.end() ? 0 : std::min(found->shares, less.shares);
  if (found == rows_.end()) return dropped;
  found->bytes -= dropped.bytes;
  found->shares -= dropped.shares;
  if (found->shares == 0) rows_.erase(found);
  return dropped;
}

void Pins::Add(const Share& share) { Add(RowFor(share)); }
void Pins::Drop(const Share& share) { Drop(RowFor(share)); }

void Pins::Add(const Pins& more) {
  for (const PinnedBytes& row : more.rows_) Add(row);
}

Pins Pins::Drop(const Pins& less) {
  Pins dropped;
  for (const PinnedBytes& row : less.rows_) {
    const PinnedBytes of_row = Drop(row);
    if (of_row.shares > 0) dropped.rows_.push_back(of_row);
  }
  return dropped;
}

PinnedBytes Pins::Sum(const PinnedIn& in) const {
  PinnedBytes sum;
  for (const PinnedBytes& row : rows_) {
    if (!in.Includes(row)) continue;
    sum.bytes += row.bytes;
    sum.shares += row.shares;
  }
  return sum;
}

}  // namespace arraybridge
