// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/tables/table_form.h"

#include <array>
#include <bitset>
#include <charconv>
#include <utility>

namespace arraybridge::tables {
namespace {

constexpr DataType kInt16{0, 16}, kInt64{0, 64};
constexpr DataType kUint16{1, 16}, kUint32{1, 32}, kUint64{1, 64};
constexpr DataType kFloat16{2, 16}, kFloat32{2, 32}, kFloat64{2, 64};

// The formats without parameters.
constexpr std::pair<std::string_view, Form> kForms[] = {
    {"n", {Kind::kNull}},
    {"b", {Kind::kBits}},
    {"c", {Kind::kFixed, kInt8}},
    {"C", {Kind::kFixed, kUint8}},
    {"s", {Kind::kFixed, kInt16}},
    {"S", {Kind::kFixed, kUint16}},
    {"i", {Kind::kFixed, kInt32}},
    {"I", {Kind::kFixed, kUint32}},
    {"l", {Kind::kFixed, kInt64}},
    {"L", {Kind::kFixed, kUint64}},
    {"e", {Kind::kFixed, kFloat16}},
    {"f", {Kind::kFixed, kFloat32}},
    {"g", {Kind::kFixed, kFloat64}},
    {"tdD", {Kind::kFixed, kInt32}},
    {"tdm", {Kind::kFixed, kInt64}},
    {"tts", {Kind::kFixed, kInt32}},
    {"ttm", {Kind::kFixed, kInt32}},
    {"ttu", {Kind::kFixed, kInt64}},
    {"ttn", {Kind::kFixed, kInt64}},
    {"tiM", {Kind::kFixed, kInt32}},
    {"tiD", {Kind::kFixed, kUint8, 8}},
    {"tin", {Kind::kFixed, kUint8, 16}},
    {"tDs", {Kind::kFixed, kInt64}},
    {"tDm", {Kind::kFixed, kInt64}},
    {"tDu", {Kind::kFixed, kInt64}},
    {"tDn", {Kind::kFixed, kInt64}},
    {"u", {Kind::kText, kInt32}},
    {"z", {Kind::kText, kInt32}},
    {"U", {Kind::kText, kInt64}},
    {"Z", {Kind::kText, kInt64}},
    {"vu", {Kind::kView}},
    {"vz", {Kind::kView}},
    {"+l", {Kind::kList, kInt32, 1, 1}},
    {"+m", {Kind::kList, kInt32, 1, 1}},
    {"+L", {Kind::kList, kInt64, 1, 1}},
    {"+vl", {Kind::kListView, kInt32, 1, 1}},
    {"+vL", {Kind::kListView, kInt64, 1, 1}},
    {"+s", {Kind::kStruct, {}, 1, -1}},
    {"+r", {Kind::kRunEnds, {}, 1, 2}},
};

// A number of 1 to `digits` decimal digits at the start of the text, which it removes; -1: there is none.
int64_t TakeNumber(std::string_view& text, size_t digits) {
  int64_t value = 0;
  size_t size = 0;
  while (size < text.size() && size < digits && text[size] >= '0' && text[size] <= '9')
    value = value * 10 + (text[size++] - '0');
  text.remove_prefix(size);
  return size == 0 ? -1 : value;
}

bool Take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// "9,2" or "9,2,256": precision and scale, and the bits of a value.
std::optional<Form> DecimalOf(std::string_view text) {
  Take(text, "-");
  if (TakeNumber(text, 4) < 0 || !Take(text, ",")) return std::nullopt;
  Take(text, "-");
  if (TakeNumber(text, 4) < 0) return std::nullopt;
  if (text.empty()) return Form{Kind::kFixed, kUint8, 16};
  for (const auto& [bits, bytes] :
       {std::pair<std::string_view, int64_t>{",32", 4}, {",64", 8}, {",128", 16}, {",256", 32}})
    if (text == bits) return Form{Kind::kFixed, kUint8, bytes};
  return std::nullopt;
}

// "0,5,7": the type ids of the children.
std::optional<Form> UnionOf(Kind kind, std::string_view text) {
  Form form{kind, {}, 1, 0};
  std::bitset<128> known;
  while (!text.empty()) {
    if (form.children > 0 && !Take(text, ",")) return std::nullopt;
    const int64_t id = TakeNumber(text, 3);
    if (id < 0 || id > 127 || known[static_cast<size_t>(id)]) return std::nullopt;
    known.set(static_cast<size_t>(id));
    ++form.children;
  }
  return form;
}

// A zone, which may be any text.
std::optional<Form> TimestampOf(std::string_view) { return Form{Kind::kFixed, kInt64}; }

// The bytes of a value, or the elements of a row.
std::optional<Form> SizedOf(Kind kind, std::string_view text) {
  const int64_t size = TakeNumber(text, 18);
  if (size < 0 || !text.empty()) return std::nullopt;
  return kind == Kind::kFixedList ? Form{kind, {}, 1, 1, size} : Form{kind, kUint8, size};
}

// The formats with parameters, which follow a prefix.
constexpr std::pair<std::string_view, std::optional<Form> (*)(std::string_view)> kParametric[] = {
    {"tss:", TimestampOf},
    {"tsm:", TimestampOf},
    {"tsu:", TimestampOf},
    {"tsn:", TimestampOf},
    {"d:", DecimalOf},
    {"+us:", [](std::string_view ids) { return UnionOf(Kind::kSparseUnion, ids); }},
    {"+ud:", [](std::string_view ids) { return UnionOf(Kind::kDenseUnion, ids); }},
    {"+w:", [](std::string_view size) { return SizedOf(Kind::kFixedList, size); }},
    {"w:", [](std::string_view size) { return SizedOf(Kind::kFixed, size); }},
};

}  // namespace

bool Form::validity() const {
  return kind != Kind::kNull && kind != Kind::kSparseUnion && kind != Kind::kDenseUnion && kind != Kind::kRunEnds;
}

size_t Form::buffers() const {
  switch (kind) {
    case Kind::kNull:
    case Kind::kRunEnds:
      return 0;
    case Kind::kStruct:
    case Kind::kFixedList:
    case Kind::kSparseUnion:
      return 1;
    case Kind::kText:
    case Kind::kListView:
      return 3;
    default:
      return 2;
  }
}

std::optional<Form> FormOf(std::string_view format) {
  for (const auto& [name, form] : kForms)
    if (name == format) return form;
  for (const auto& [prefix, read] : kParametric)
    if (Take(format, prefix)) return read(format);
  return std::nullopt;
}

}  // namespace arraybridge::tables
