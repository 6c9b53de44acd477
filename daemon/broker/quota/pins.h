// Pins count the withdrawn bytes that a session, or all sessions of a user, keep from reuse by leases and hazard slots.
// Each byte counts for its device, its namespace and the user who made its share, because each of these has a limit.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/boundary/handle.h"

namespace arraybridge {

class Namespace;
struct Share;

struct PinnedBytes {
  Device device;
  const Namespace* ns = nullptr;
  uint32_t maker_uid = 0;
  uint64_t bytes = 0;
  uint64_t shares = 0;
};

// A PinnedIn says which rows a sum includes: those that match each field that is set.
struct PinnedIn {
  std::optional<Device> device{};
  const Namespace* ns = nullptr;
  std::optional<uint32_t> maker_uid{};
  std::optional<uint32_t> not_made_by{};  // a uid

  bool Includes(const PinnedBytes& row) const;
};

// Not thread-safe. A row exists as long as a share of it does, so no row outlives its namespace.
class Pins {
 public:
  void Add(const Share& share);
  void Drop(const Share& share);
  void Add(const Pins& more);
  // Drops as much of `less` as is there, and returns it.
  Pins Drop(const Pins& less);

  PinnedBytes Sum(const PinnedIn& in) const;
  const std::vector<PinnedBytes>& rows() const { return rows_; }
  bool empty() const { return rows_.empty(); }

 private:
  void Add(const PinnedBytes& more);
  PinnedBytes Drop(const PinnedBytes& less);

  std::vector<PinnedBytes> rows_;
};

}  // namespace arraybridge
