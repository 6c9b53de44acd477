// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/text.h"

#include <array>

namespace arraybridge {

char32_t TakeCharacter(std::string_view* text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>((*text)[i]); };
  const unsigned char first = byte(0);
  const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  constexpr std::array<char32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  if ((first >= 0x80 && first < 0xC2) || first > 0xF4 || text->size() < length) return kBadText;
  char32_t character = length == 1 ? first : first & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return kBadText;
    character = character << 6 | (byte(i) & 0x3F);
  }
  text->remove_prefix(length);
  const bool surrogate = character >= 0xD800 && character <= 0xDFFF;
  return character < kLeast[length] || surrogate || character > 0x10FFFF ? kBadText : character;
}

namespace {

struct Range {
  char32_t first;
  char32_t last;
};
// Unicode's control characters, the format characters that change the display of other characters, and its line and
// paragraph separators.
constexpr std::array<Range, 11> kActing = {{{0x00, 0x1F},
                                            {0x7F, 0x9F},
                                            {0xAD, 0xAD},
                                            {0x61C, 0x61C},
                                            {0x180E, 0x180E},
                                            {0x200B, 0x200F},
                                            {0x2028, 0x202E},
                                            {0x2060, 0x206F},
                                            {0xFEFF, 0xFEFF},
                                            {0xFFF9, 0xFFFB},
                                            {0xE0000, 0xE0FFF}}};

bool IsPrintable(char32_t character) {
  for (const Range& range : kActing) {
    if (character >= range.first && character <= range.last) return false;
  }
  return true;
}

bool IsPlain(char byte) { return byte >= 0x20 && byte < 0x7F; }

void AppendHex(const char* prefix, uint32_t value, int digits, std::string* out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  *out += prefix;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) *out += kDigits[value >> shift & 15];
}

// `in_json`: characters below U+0020 are the document's own white space, and \x is not an escape in JSON.
std::string Escaped(std::string_view text, bool in_json) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    if (IsPlain(text.front()) || (in_json && static_cast<unsigned char>(text.front()) < 0x20)) {
      out += text.front();
      text.remove_prefix(1);
      continue;
    }
    const std::string_view before = text;
    const char32_t character = TakeCharacter(&text);
    if (character == kBadText) {
      text = before.substr(1);
      AppendHex(in_json ? "\\u00" : "\\x", static_cast<unsigned char>(before.front()), 2, &out);
    } else if (IsPrintable(character)) {
      out += before.substr(0, before.size() - text.size());
    } else if (character < 0x100 && !in_json) {
      AppendHex("\\x", character, 2, &out);
    } else if (character < 0x10000) {
      AppendHex("\\u", character, 4, &out);
    } else if (in_json) {  // a surrogate pair
      AppendHex("\\u", 0xD7C0 + (character >> 10), 4, &out);
      AppendHex("\\u", 0xDC00 + (character & 0x3FF), 4, &out);
    } else {
      AppendHex("\\U", character, 8, &out);
    }
  }
  return out;
}

}  // namespace

std::string Printable(std::string text) {
  for (const char byte : text) {
    if (!IsPlain(byte)) return Escaped(text, false);
  }
  return text;
}

std::string PrintableJson(std::string_view json) { return Escaped(json, true); }

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    if (static_cast<signed char>(text.front()) >= 0) {
      text.remove_prefix(1);
    } else if (TakeCharacter(&text) == kBadText) {
      return false;
    }
  }
  return true;
}

}  // namespace arraybridge
