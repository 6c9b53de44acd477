// The input of recovery: the records of the journal, and the stored descriptors.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/broker/calls.h"
#include "daemon/broker/recovery/records.h"
#include "daemon/memory/descriptor_store.h"
#include "daemon/memory/shared_pages/record_file.h"

namespace arraybridge {

// A record's fixed part and the texts behind it.
template <class Fixed>
class Reading {
 public:
  explicit Reading(std::string_view content) {
    std::memcpy(&fixed_, content.data(), std::min(content.size(), sizeof fixed_));
    content.remove_prefix(std::min(content.size(), sizeof fixed_));
    rest_ = content;
  }
  const Fixed& operator*() const { return fixed_; }
  const Fixed* operator->() const { return &fixed_; }
  std::string Text(size_t bytes) {
    std::string text(rest_.substr(0, bytes));
    rest_.remove_prefix(std::min(rest_.size(), bytes));
    return text;
  }
  // The part that follows the texts; zeros if there is none.
  template <class More>
  More Rest() const {
    More more{};
    std::memcpy(&more, rest_.data(), std::min(rest_.size(), sizeof more));
    return more;
  }
  std::string_view rest() const { return rest_; }

 private:
  Fixed fixed_{};
  std::string_view rest_;
};

inline Clock::time_point TimeOf(int64_t ns) { return Clock::time_point(std::chrono::nanoseconds(ns)); }

// The newest record of each object.
class Records {
 public:
  struct Entry {
    uint32_t place = 0;
    uint64_t sequence = 0;
    std::string content;
  };
  using Table = std::map<uint64_t, Entry>;

  // Returns the place of a record that this one replaces, or 0.
  uint32_t Add(const RecordFile::Record& record) {
    uint64_t id = 0;
    std::memcpy(&id, record.content.data(), std::min(sizeof id, record.content.size()));
    const bool is_unique =
        record.kind == record::kQuota || record.kind == record::kReturned || record.kind == record::kTicket;
    Entry& entry = of_kind_[record.kind][is_unique ? record.place : id];
    if (entry.place != 0 && entry.sequence > record.sequence) return record.place;
    const uint32_t old = entry.place;
    entry = {record.place, record.sequence, std::string(record.content)};
    return old;
  }
  Table& Of(record::Kind kind) { return of_kind_[kind]; }

 private:
  std::map<uint8_t, Table> of_kind_;
};

// The stored descriptors, by name.
class StoredFiles {
 public:
  explicit StoredFiles(std::vector<StoredDescriptor> files) {
    for (StoredDescriptor& each : files) files_.emplace(std::move(each.name), std::move(each.fd));
  }
  // One of those with this name, in any order; invalid: there is none left.
  UniqueFd Take(const std::string& name) {
    const auto found = files_.lower_bound(name);
    if (found == files_.end() || found->first != name) return UniqueFd();
    UniqueFd file = std::move(found->second);
    files_.erase(found);
    return file;
  }
  // The names of descriptors that were not taken.
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& [name, file] : files_) names.insert(name);
    return names;
  }

 private:
  std::multimap<std::string, UniqueFd> files_;
};

}  // namespace arraybridge
