// SPDX-License-Identifier: Apache-2.0
// A RecordFile keeps records in a memfd that no other process maps. A daemon that is killed at any instruction leaves a
// file from which the next one reads every record whole, or not at all.
//
// A record occupies 1, 2, 4, ... slots. Put writes the content, and then the head with one store; Erase writes the head
// with one store. The head has a check that depends on a secret and on its place, so that neither the bytes of a client
// nor damaged memory look like a head. The content has a checksum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

// Not thread-safe.
class RecordFile {
 public:
  static constexpr uint32_t kMajor = 2;  // a daemon of another major version cannot read the file
  static constexpr uint32_t kMinor = 0;  // a higher minor version has more kinds of records
  static constexpr uint64_t kSlotBytes = 64;
  static constexpr uint64_t kSlotsMax = uint64_t{1} << 28;
  static constexpr size_t kWords = 32;

  // The slot of a record. 0: none.
  using Place = uint32_t;
  struct Record {
    Place place = 0;
    uint8_t kind = 0;
    uint64_t sequence = 0;  // grows with each Put
    std::string_view content;
  };

  // RESOURCE_EXHAUSTED: no descriptor or no memory.
  static Result<std::unique_ptr<RecordFile>> Create();
  // The file of another daemon. FAILED_PRECONDITION, OTHER_LAYOUT: its major version is another one, or it is no such
  // file.
  static Result<std::unique_ptr<RecordFile>> Adopt(UniqueFd file);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  // Stays owned by this object.
  int file() const { return file_.get(); }
  // The minor version of the newest daemon that has written into the file.
  uint32_t minor() const;
  // Words that keep their values; 0 in a new file. `index` < kWords.
  uint64_t& word(size_t index);

  // Visits all records that are whole, in the order of their places. Returns the number of records that were damaged,
  // which are erased. REQUIRES: called once, after Adopt and before Put.
  uint64_t Scan(const std::function<void(const Record&)>& visit);
  // Reserves memory for a few records that have so many bytes of text in total. False: there is none.
  bool Reserve(uint64_t bytes);
  // Returns 0 if there is no memory, which Reserve prevents. `kind` > 0.
  Place Put(uint8_t kind, std::string_view content);
  void Erase(Place place);
  // Puts the record anew, and then erases the old one. Returns the old place if there is no memory.
  Place Replace(Place place, uint8_t kind, std::string_view content);

  uint64_t records() const { return records_; }

 private:
  static constexpr unsigned kClasses = 24;
  struct Header;
  struct Head;

  RecordFile(UniqueFd file, std::byte* base) : file_(std::move(file)), base_(base) {}
  static Result<std::unique_ptr<RecordFile>> Map(UniqueFd file);

  Header& header() const;
  Head& head(uint64_t slot) const { return *reinterpret_cast<Head*>(base_ + slot * kSlotBytes); }
  uint64_t StateOf(uint64_t slot, unsigned of_class, uint8_t kind) const;
  // The class and the kind of the head; false: it is none.
  bool Read(uint64_t slot, unsigned* of_class, uint8_t* kind) const;
  uint64_t Sum(std::string_view content, uint64_t sequence) const;
  bool Extend(uint64_t slots);
  Place Take(unsigned of_class);

  const UniqueFd file_;
  std::byte* const base_;
  std::array<std::vector<Place>, kClasses> free_;
  uint64_t used_ = 0;      // leading slots that have been used
  uint64_t reserved_ = 0;  // leading slots that have memory
  uint64_t records_ = 0;
};

}  // namespace arraybridge::daemon
