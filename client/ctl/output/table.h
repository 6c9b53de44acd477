// SPDX-License-Identifier: Apache-2.0
// A Table is rows of text under a header: aligned columns for people, CSV or JSON for programs. In JSON each row is an
// object of texts whose keys are the headings, in lower case with hyphens. This header also formats sizes and ages.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace arraybridge::ctl {

// kTable and kWide are for people: kWide has the columns that are rarely needed.
enum class Output : uint8_t { kTable, kWide, kCsv, kJson, kJsonl };
// The unit of sizes in tables. kFitting: the unit with the fewest digits.
enum class Unit : uint8_t { kFitting, kB, kKiB, kMiB, kGiB };

struct Style {
  Output output = Output::kTable;
  Unit unit = Unit::kFitting;

  bool people() const { return output <= Output::kWide; }
  bool json() const { return output >= Output::kJson; }
};

class Table {
 public:
  // `widths`: minimum widths of the columns; columns without an entry have 0.
  explicit Table(std::vector<std::string> header, Style style = {}, std::vector<size_t> widths = {})
      : header_(std::move(header)), style_(style), widths_(std::move(widths)) {}

  // Cells in the form of the style: programs get bytes and milliseconds.
  std::string Size(uint64_t bytes) const;
  std::string Age(uint64_t milliseconds) const;

  // REQUIRES: as many cells as the header has.
  void Add(std::vector<std::string> cells);
  // Control characters are escaped, because names come from other users.
  void Print(std::ostream& out, bool with_header) const;

 private:
  void PrintJson(std::ostream& out) const;

  std::vector<std::string> header_;
  Style style_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

// A heading as a word of the command line: "expires-in" for "EXPIRES IN".
std::string WordOf(std::string heading);
std::string HeadingOf(std::string word);

// "512 B", "1.5 KiB", "64 MiB": at most one decimal, none above 10. With an explicit unit: always one decimal, except
// for bytes.
std::string HumanSize(uint64_t bytes, Unit unit = Unit::kFitting);
// "350 ms", "12 s", "5 min", "3 h", "9 d".
std::string HumanAge(uint64_t milliseconds);

}  // namespace arraybridge::ctl
