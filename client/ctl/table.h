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

class Table {
 public:
  // `widths`: of columns that are to be no narrower; fewer than the header has: 0.
  explicit Table(std::vector<std::string> header, Form form = Form::kPeople, std::vector<size_t> widths = {})
      : header_(std::move(header)), form_(form), widths_(std::move(widths)) {}

  // Cells as the form wants them: CSV has bytes and milliseconds.
  std::string Size(uint64_t bytes) const;
  std::string Age(uint64_t milliseconds) const;

  // REQUIRES: as many cells as the header has. Control characters are shown as '?': names come from other users.
  void Add(std::vector<std::string> cells);
  void Print(std::ostream& out, bool with_header) const;

 private:
  std::vector<std::string> header_;
  Form form_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

// "512 B", "1.5 KiB", "64 MiB": at most one decimal, none above 10.
std::string HumanSize(uint64_t bytes);
// "350 ms", "12 s", "5 min", "3 h", "9 d".
std::string HumanAge(uint64_t milliseconds);

}  // namespace arraybridge::ctl
