// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/output/table.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ostream>
#include <utility>

#include "client/ctl/output/json.h"
#include "proto/boundary/result.h"
#include "proto/boundary/text.h"

namespace arraybridge::ctl {
namespace {

constexpr size_t kGap = 2;

// In characters, not bytes: continuation bytes of UTF-8 take no column.
size_t Width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

void PrintRow(std::ostream& out, const std::vector<std::string>& cells, const std::vector<size_t>& widths) {
  for (size_t i = 0; i < cells.size(); ++i) {
    out << cells[i];
    if (i + 1 < cells.size()) out << std::string(widths[i] + kGap - Width(cells[i]), ' ');
  }
  out << '\n';
}

// RFC 4180, except for its line ends.
void PrintCsv(std::ostream& out, const std::vector<std::string>& cells) {
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) out << ',';
    if (cells[i].find_first_of(",\"") == std::string::npos) {
      out << cells[i];
      continue;
    }
    out << '"';
    for (const char c : cells[i]) out << (c == '"' ? "\"\"" : std::string(1, c));
    out << '"';
  }
  out << '\n';
}

}  // namespace

void Table::Add(std::vector<std::string> cells) {
  AB_CHECK(cells.size() == header_.size());
  for (auto& cell : cells) {
    if (!style_.json()) cell = Printable(std::move(cell));
    if (cell.empty() && style_.people()) cell.push_back('-');
  }
  rows_.push_back(std::move(cells));
}

std::string Table::Size(uint64_t bytes) const {
  return style_.people() ? HumanSize(bytes, style_.unit) : std::to_string(bytes);
}

std::string Table::Age(uint64_t milliseconds) const {
  return style_.people() ? HumanAge(milliseconds) : std::to_string(milliseconds);
}

void Table::Print(std::ostream& out, bool with_header) const {
  if (style_.json()) return PrintJson(out);
  if (!style_.people()) {
    if (with_header) PrintCsv(out, header_);
    for (const auto& row : rows_) PrintCsv(out, row);
    return;
  }
  std::vector<size_t> widths = widths_;
  widths.resize(header_.size(), 0);
  const auto widen = [&widths](const std::vector<std::string>& cells) {
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], Width(cells[i]));
  };
  if (with_header) widen(header_);
  for (const auto& row : rows_) widen(row);
  if (with_header) PrintRow(out, header_, widths);
  for (const auto& row : rows_) PrintRow(out, row, widths);
}

void Table::PrintJson(std::ostream& out) const {
  const bool lines = style_.output == Output::kJsonl;
  std::string text;
  JsonWriter json(!lines, &text);
  if (!lines) json.Open('[');
  for (const auto& row : rows_) {
    if (!lines) json.Next();
    json.Open('{');
    for (size_t i = 0; i < row.size(); ++i) json.Key(WordOf(header_[i])).Text(row[i]);
    json.Close('}');
    if (lines) text += '\n';
  }
  if (!lines) json.Close(']');
  out << text << (lines ? "" : "\n");
}

std::string WordOf(std::string heading) {
  for (char& c : heading) c = c == ' ' ? '-' : static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return heading;
}

std::string HeadingOf(std::string word) {
  for (char& c : word) c = c == '-' ? ' ' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return word;
}

std::string HumanSize(uint64_t bytes, Unit unit) {
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  const bool fitting = unit == Unit::kFitting;
  if (unit == Unit::kB || (fitting && bytes < 1024)) return Concat(bytes, " B");
  const size_t last = fitting ? units.size() - 1 : static_cast<size_t>(unit) - static_cast<size_t>(Unit::kB);
  size_t shown = 0;
  auto value = static_cast<double>(bytes);
  for (; shown < last && (value >= 1024 || !fitting); ++shown) value /= 1024;
  const bool whole = fitting && (value >= 10 || value == static_cast<double>(static_cast<uint64_t>(value)));
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), whole ? "%.0f %s" : "%.1f %s", value, units[shown]);
  return text.data();
}

std::string HumanAge(uint64_t milliseconds) {
  constexpr uint64_t kSecond = 1000, kMinute = 60 * kSecond, kHour = 60 * kMinute, kDay = 24 * kHour;
  if (milliseconds < kSecond) return Concat(milliseconds, " ms");
  if (milliseconds < 2 * kMinute) return Concat(milliseconds / kSecond, " s");
  if (milliseconds < 2 * kHour) return Concat(milliseconds / kMinute, " min");
  if (milliseconds < 2 * kDay) return Concat(milliseconds / kHour, " h");
  return Concat(milliseconds / kDay, " d");
}

}  // namespace arraybridge::ctl
