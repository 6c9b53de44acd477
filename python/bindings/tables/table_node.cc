// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/tables/table_node.h"

#include <array>
#include <cstring>
#include <optional>
#include <utility>

namespace arraybridge::tables {
namespace {

Status Malformed(std::string_view what) {
  return InvalidArgument("the share's structure contains a table that ", what);
}

constexpr std::string_view kNoTable = "is not [kind, node, first, count]";
constexpr std::string_view kNoNode = "has a column without its nine fields";
constexpr std::string_view kNoText = "has a column whose format or name is not text";
constexpr std::string_view kNoNumber = "has a column with an invalid number";
constexpr std::string_view kNoLists = "has a column without lists of buffers and children";

// A Reader takes JSON from the start of a text. Each function takes one thing, or returns false or nothing.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool AtEnd() {
    SkipSpace();
    return text_.empty();
  }

  bool Take(std::string_view token) {
    SkipSpace();
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }

  std::optional<int64_t> Number() {
    SkipSpace();
    int64_t value = 0;
    size_t size = 0;
    while (size < text_.size() && text_[size] >= '0' && text_[size] <= '9') {
      value = value * 10 + (text_[size++] - '0');
      if (value > kNumberMax) return std::nullopt;
    }
    if (size == 0) return std::nullopt;
    text_.remove_prefix(size);
    return value;
  }

  // Without its quotes and escapes. Bytes that are no UTF-8 are escaped surrogates, as Python's surrogateescape has
  // them.
  std::optional<std::string> Text() {
    if (!Take("\"")) return std::nullopt;
    std::string found;
    while (true) {
      const size_t plain = text_.find_first_of("\"\\");
      if (plain == std::string_view::npos) return std::nullopt;
      found += text_.substr(0, plain);
      const bool ends = text_[plain] == '"';
      text_.remove_prefix(plain + 1);
      if (ends) return found;
      if (!Escape(found)) return std::nullopt;
    }
  }

 private:
  void SkipSpace() {
    const size_t size = text_.find_first_not_of(" \t\r\n");
    text_.remove_prefix(size == std::string_view::npos ? text_.size() : size);
  }

  bool Escape(std::string& found) {
    if (text_.empty()) return false;
    const char kind = text_.front();
    text_.remove_prefix(1);
    if (kind == 'u') return Unicode(found);
    constexpr std::string_view kEscapes = "\"\\/bfnrt", kCharacters = "\"\\/\b\f\n\r\t";
    const size_t place = kEscapes.find(kind);
    if (place == std::string_view::npos) return false;
    found += kCharacters[place];
    return true;
  }

  std::optional<uint32_t> Unit() {
    if (text_.size() < 4) return std::nullopt;
    uint32_t value = 0;
    for (const char each : text_.substr(0, 4)) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const size_t digit = kDigits.find(each >= 'A' && each <= 'F' ? static_cast<char>(each + 32) : each);
      if (digit == std::string_view::npos) return std::nullopt;
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    text_.remove_prefix(4);
    return value;
  }

  bool Unicode(std::string& found) {
    const auto unit = Unit();
    if (!unit) return false;
    if (*unit >> 11 != 0xD800 >> 11) return Append(found, *unit), true;
    if (*unit >= 0xDC80 && *unit <= 0xDCFF) return found += static_cast<char>(*unit - 0xDC00), true;
    return *unit < 0xDC00 && LowSurrogate(found, *unit);
  }

  // The second of two surrogates.
  bool LowSurrogate(std::string& found, uint32_t high) {
    if (!text_.starts_with("\\u")) return false;
    text_.remove_prefix(2);
    const auto low = Unit();
    if (!low || *low >> 10 != 0xDC00 >> 10) return false;
    return Append(found, 0x10000 + ((high - 0xD800) << 10) + (*low - 0xDC00)), true;
  }

  // In UTF-8.
  static void Append(std::string& found, uint32_t point) {
    const auto byte = [&](uint32_t value) { found += static_cast<char>(value); };
    if (point < 0x80) return byte(point);
    if (point < 0x800) return byte(0xC0 | point >> 6), byte(0x80 | (point & 0x3F));
    if (point < 0x10000) {
      byte(0xE0 | point >> 12);
    } else {
      byte(0xF0 | point >> 18);
      byte(0x80 | (point >> 12 & 0x3F));
    }
    byte(0x80 | (point >> 6 & 0x3F));
    byte(0x80 | (point & 0x3F));
  }

  std::string_view text_;
};

// Nothing: it is not base64 with padding.
std::optional<std::string> BytesOf(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string found;
  found.reserve(text.size() / 4 * 3);
  for (size_t at = 0; at < text.size(); at += 4) {
    const bool last = at + 4 == text.size();
    const size_t padding = last && text[at + 3] == '=' ? 1 + (text[at + 2] == '=') : 0;
    uint32_t bits = 0;
    for (size_t index = 0; index < 4; ++index) {
      constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
      const size_t digit = index + padding >= 4 ? 0 : kDigits.find(text[at + index]);
      if (digit == std::string_view::npos) return std::nullopt;
      bits = bits << 6 | static_cast<uint32_t>(digit);
    }
    for (size_t index = 0; index < 3 - padding; ++index) found += static_cast<char>(bits >> (16 - 8 * index));
  }
  return found;
}

// A consumer of the C data interface gets an address without a size, so that the metadata must say where it ends.
Status CheckMetadata(std::string_view metadata) {
  const auto number = [&]() -> std::optional<int32_t> {
    int32_t value = 0;
    if (metadata.size() < sizeof value) return std::nullopt;
    std::memcpy(&value, metadata.data(), sizeof value);
    metadata.remove_prefix(sizeof value);
    return value;
  };
  const size_t all = metadata.size();
  const auto count = number();
  if (!count) return Malformed("has metadata that ends too early");
  if (*count < 0 || static_cast<size_t>(*count) > all)
    return Malformed("has metadata with an invalid number of entries");
  for (int64_t part = 0; part < 2 * int64_t{*count}; ++part) {
    const auto size = number();
    if (!size) return Malformed("has metadata that ends too early");
    if (*size < 0 || static_cast<size_t>(*size) > metadata.size())
      return Malformed("has metadata that reaches beyond its end");
    metadata.remove_prefix(static_cast<size_t>(*size));
  }
  return Ok();
}

Status ReadNode(Reader& reader, Node& node, int depth);

Status ReadTexts(Reader& reader, Node& node) {
  std::string metadata;
  for (std::string* const target : {&node.format, &node.name, &metadata}) {
    auto text = reader.Text();
    if (!text || text->find('\0') != std::string::npos) return Malformed(kNoText);
    *target = *std::move(text);
    if (!reader.Take(",")) return Malformed(kNoNode);
  }
  if (metadata.empty()) return Ok();
  auto bytes = BytesOf(metadata);
  if (!bytes) return Malformed("has metadata that is not base64");
  node.metadata = *std::move(bytes);
  return CheckMetadata(node.metadata);
}

Status ReadNumbers(Reader& reader, Node& node) {
  for (int64_t* const target : {&node.flags, &node.length, &node.nulls}) {
    const auto number = reader.Number();
    if (!number) return Malformed(kNoNumber);
    *target = *number;
    if (!reader.Take(",")) return Malformed(kNoNode);
  }
  return Ok();
}

// A list of what `read` takes, and nothing after it.
template <class Read>
Status ReadList(Reader& reader, Read read) {
  if (!reader.Take("[")) return Malformed(kNoLists);
  if (reader.Take("]")) return Ok();
  while (true) {
    AB_RETURN_IF_ERROR(read());
    if (reader.Take("]")) return Ok();
    if (!reader.Take(",")) return Malformed(kNoLists);
  }
}

Status ReadBuffers(Reader& reader, Node& node) {
  return ReadList(reader, [&]() -> Status {
    const bool absent = reader.Take("null");
    const auto number = absent ? kNone : reader.Number();
    if (!number) return Malformed(kNoLists);
    node.buffers.push_back(*number);
    return Ok();
  });
}

Status ReadDictionary(Reader& reader, Node& node, int depth) {
  if (reader.Take("null")) return Ok();
  node.dictionary = std::make_unique<Node>();
  return ReadNode(reader, *node.dictionary, depth);
}

Status Expect(Reader& reader, std::string_view token, std::string_view otherwise) {
  return reader.Take(token) ? Ok() : Malformed(otherwise);
}

Status ReadNode(Reader& reader, Node& node, int depth) {
  if (depth > kDepthMax) return Malformed("is nested more than 48 deep");
  static_assert(kDepthMax == 48);
  AB_RETURN_IF_ERROR(Expect(reader, "[", kNoNode));
  AB_RETURN_IF_ERROR(ReadTexts(reader, node));
  AB_RETURN_IF_ERROR(ReadNumbers(reader, node));
  AB_RETURN_IF_ERROR(ReadBuffers(reader, node));
  AB_RETURN_IF_ERROR(Expect(reader, ",", kNoNode));
  AB_RETURN_IF_ERROR(ReadList(reader, [&] { return ReadNode(reader, node.children.emplace_back(), depth + 1); }));
  AB_RETURN_IF_ERROR(Expect(reader, ",", kNoNode));
  AB_RETURN_IF_ERROR(ReadDictionary(reader, node, depth + 1));
  return Expect(reader, "]", kNoNode);
}

Status ReadKind(Reader& reader, std::string& kind) {
  AB_RETURN_IF_ERROR(Expect(reader, "[", kNoTable));
  auto text = reader.Text();
  if (text != "table" && text != "column" && text != "series") return Malformed(kNoTable);
  kind = *std::move(text);
  return Expect(reader, ",", kNoTable);
}

Status ReadRange(Reader& reader, Description& found) {
  for (int64_t* const target : {&found.first, &found.count}) {
    AB_RETURN_IF_ERROR(Expect(reader, ",", kNoTable));
    const auto number = reader.Number();
    if (!number) return Malformed("has no range of arrays");
    *target = *number;
  }
  return Expect(reader, "]", kNoTable);
}

}  // namespace

Result<Description> ReadDescription(std::string_view text) {
  Reader reader(text);
  const bool wrapped = reader.Take("{");
  if (wrapped && (reader.Text() != "table" || !reader.Take(":"))) return Malformed(kNoTable);
  Description found;
  AB_RETURN_IF_ERROR(ReadKind(reader, found.kind));
  AB_RETURN_IF_ERROR(ReadNode(reader, found.node, 0));
  AB_RETURN_IF_ERROR(ReadRange(reader, found));
  if (wrapped) AB_RETURN_IF_ERROR(Expect(reader, "}", kNoTable));
  if (!reader.AtEnd()) return Malformed(kNoTable);
  return found;
}

}  // namespace arraybridge::tables
