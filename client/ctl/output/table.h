// A Table is rows of text under a header: for people in columns as wide as their widest cell, for programs as CSV.
// Also: how people read sizes and ages.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace arraybridge::ctl {

enum class Form : uint8_t { kPeople, kCsv };
// Of sizes for people. kFitting: the one that leaves the fewest digits.
enum class Unit : uint8_t { kFitting, kB, kKiB, kMiB, kGiB };

struct Style {
  Form form = Form::kPeople;
  Unit unit = Unit::kFitting;
  bool wide = false;  // columns, too, that most people rarely ask for
};

class Table {
 public:
  // `widths`: of columns that are to be no narrower; fewer than the header has: 0.
  explicit Table(std::vector<std::string> header, Style style = {}, std::vector<size_t> widths = {})
      : header_(std::move(header)), style_(style), widths_(std::move(widths)) {}

  // Cells as the style wants them: CSV has bytes and milliseconds.
  std::string Size(uint64_t bytes) const;
  std::string Age(uint64_t milliseconds) const;

  // REQUIRES: as many cells as the header has. Control characters are shown as '?': names come from other users.
  void Add(std::vector<std::string> cells);
  void Print(std::ostream& out, bool with_header) const;

 private:
  std::vector<std::string> header_;
  Style style_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

// "512 B", "1.5 KiB", "64 MiB": at most one decimal, none above 10. In a unit that was asked for: always with one
// decimal, but for bytes.
std::string HumanSize(uint64_t bytes, Unit unit = Unit::kFitting);
// "350 ms", "12 s", "5 min", "3 h", "9 d".
std::string HumanAge(uint64_t milliseconds);

}  // namespace arraybridge::ctl
