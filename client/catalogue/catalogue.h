// SPDX-License-Identifier: Apache-2.0
// A ReadCatalogue is a namespace's catalogue, mapped read-only. The broker writes it, and this process finds shares in
// it by name (proto/boundary/layouts/catalogue.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "proto/boundary/layouts/catalogue.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Thread-safe, because this process never writes to it. Not mapped in forked children (MADV_DONTFORK).
class ReadCatalogue {
 public:
  // FAILED_PRECONDITION: the file is not a catalogue of this layout, or could shrink. RESOURCE_EXHAUSTED: no address
  // space.
  static Result<std::unique_ptr<const ReadCatalogue>> Map(const UniqueFd& file);
  ~ReadCatalogue();
  ReadCatalogue(const ReadCatalogue&) = delete;
  ReadCatalogue& operator=(const ReadCatalogue&) = delete;

  Hash128 HashOf(std::string_view name) const { return SipHash128(key_, name); }
  // A found share may go away at any time; only a hazard slot keeps it.
  catalogue::Found Find(const Hash128& hash) const { return catalogue::Find(table_, hash); }
  const catalogue::Record& record(uint64_t slot) const { return table_.record(slot); }
  // True if the namespace is gone or has a new catalogue. Nothing is found in this one any more.
  bool closed() const { return Load(table_.header().closed, std::memory_order_acquire) != 0; }

 private:
  ReadCatalogue(const std::byte* base, uint64_t capacity) : table_{base, {capacity}}, key_(table_.header().key) {}

  const catalogue::Table table_;
  const SipKey key_;
};

}  // namespace arraybridge
