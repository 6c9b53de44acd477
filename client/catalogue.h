// A ReadCatalogue is a namespace's catalogue, mapped read-only: the broker writes it, this process finds shares in it
// by name (proto/boundary/catalogue_layout.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "proto/boundary/catalogue_layout.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Thread-safe: of this side it never changes. A forked child does not have it.
class ReadCatalogue {
 public:
  // FAILED_PRECONDITION: it is no catalogue that this client can read, or could shrink. RESOURCE_EXHAUSTED: no address
  // space.
  static Result<std::unique_ptr<const ReadCatalogue>> Map(const UniqueFd& file);
  ~ReadCatalogue();
  ReadCatalogue(const ReadCatalogue&) = delete;
  ReadCatalogue& operator=(const ReadCatalogue&) = delete;

  Hash128 HashOf(std::string_view name) const { return SipHash128(key_, name); }
  // Only a hold keeps what was found.
  catalogue::Found Find(const Hash128& hash) const { return catalogue::Find(table_, hash); }
  const catalogue::Record& record(uint64_t slot) const { return table_.record(slot); }
  // Its namespace has gone, or has another one: nothing is found here any more.
  bool closed() const { return Load(table_.header().closed, std::memory_order_acquire) != 0; }

 private:
  ReadCatalogue(const std::byte* base, uint64_t capacity) : table_{base, {capacity}}, key_(table_.header().key) {}

  const catalogue::Table table_;
  const SipKey key_;
};

}  // namespace arraybridge
