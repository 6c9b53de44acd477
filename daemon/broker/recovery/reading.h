// SPDX-License-Identifier: Apache-2.0
// The input of recovery: the records of the journal, and the stored descriptors.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/broker/ledger/records.h"
#include "daemon/memory/descriptor_store.h"
#include "daemon/memory/shared_pages/record_file.h"

namespace arraybridge::daemon {

// The newest record of each object, by kind and in the order of the objects' numbers.
class Records {
 public:
  struct Entry {
    uint64_t id = 0;  // of the object; the place of a record whose kind has no number
    uint64_t sequence = 0;
    std::string_view content;  // in the journal's file, until a record takes its place after its end
    uint32_t place = 0;

    // The texts of the message are views of the content. A record that is whole can be read; of another, the fields
    // after the damage are absent.
    template <class Message>
    Message Read() const {
      Message message;
      wire::Fault fault;
      wire::Reader in(content, &fault);
      static_cast<void>(record::Read(in, message));
      return message;
    }
  };
  using Table = std::vector<Entry>;

  void Add(const RecordFile::Record& record) {
    uint64_t id = record.place;
    wire::Fault fault;
    wire::Reader in(record.content, &fault);
    if (in.Next() && in.tag() == wire::Tag(1, wire::Type::kFixed64)) in.GetFixed64(id);
    of_kind_.at(record.kind).push_back({id, record.sequence, record.content, record.place});
  }
  // Drops older records of the same object and returns their places. REQUIRES: called once, between Add and Of.
  std::vector<uint32_t> Sort() {
    std::vector<uint32_t> old;
    for (Table& table : of_kind_) {
      const auto key = [](const Entry& entry) { return std::pair(entry.id, entry.sequence); };
      if (!std::ranges::is_sorted(table, {}, key)) std::ranges::sort(table, {}, key);
      size_t kept = 0;
      for (size_t i = 0; i < table.size(); ++i) {
        const bool newest = i + 1 == table.size() || table[i + 1].id != table[i].id;
        if (newest) table[kept++] = table[i];
        if (!newest) old.push_back(table[i].place);
      }
      table.resize(kept);
    }
    return old;
  }
  const Table& Of(uint8_t kind) const { return of_kind_.at(kind); }  // of record::Kind

 private:
  std::array<Table, 256> of_kind_;  // a kind is one byte
};

// The stored descriptors, by name.
class StoredFiles {
 public:
  explicit StoredFiles(std::vector<StoredDescriptor> files) {
    for (StoredDescriptor& each : files) files_.emplace(std::move(each.name), std::move(each.fd));
  }
  // A file of this name, in any order. Invalid: no file of this name is left.
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

}  // namespace arraybridge::daemon
