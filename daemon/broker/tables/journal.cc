// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/journal.h"

#include <array>
#include <charconv>
#include <vector>

namespace arraybridge::daemon {

std::string StoredName(char letter, uint64_t number) {
  std::array<char, 24> text;
  text[0] = letter;
  const auto end = std::to_chars(text.data() + 1, text.data() + text.size(), number).ptr;
  return {text.data(), end};
}

void Journal::Begin(std::unique_ptr<RecordFile> file, DescriptorStore& store) {
  file_ = std::move(file);
  store_ = &store;
  pages_.ContinueIn(word(record::kLastPage));
}

Status Journal::CheckRoom(uint64_t bytes) {
  if (!keeps() || file_->Reserve(bytes)) return Ok();
  return ResourceExhausted("no memory for the journal of the broker").Because("SYSTEM_MEMORY");
}

void Journal::Erase(Place record) {
  if (keeps()) file_->Erase(record);
}

Result<StoreGuard> Journal::Store(std::string name, std::span<const int> files, DescriptorStore::Until until) const {
  if (store_ == nullptr) return StoreGuard();
  std::vector<DescriptorStore::Entry> entries;
  entries.reserve(files.size());
  for (const int file : files) entries.push_back({name, file});
  const Status stored = store_->Store(entries, until);
  // Without its holder the daemon serves on, and says so.
  if (!stored.ok() && store_->usage().holder_has_ended) return StoreGuard();
  // Some of them may be stored, or will be when the holder goes on.
  if (!stored.ok() && stored.reason() != "STORE_FULL") store_->Remove(name);
  if (!stored.ok()) return stored;
  return Has(std::move(name));
}

}  // namespace arraybridge::daemon
