// SPDX-License-Identifier: Apache-2.0
// Functions for texts that other processes wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace arraybridge {

// The longest prefix of a UTF-8 text that has at most `bytes_max` bytes and ends with a whole character.
inline std::string_view FirstBytes(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0U) == 0x80U) --end;
  return text.substr(0, end);
}

inline constexpr char32_t kBadText = 0xFFFFFFFF;

// Decodes one character and removes it from `text`. Returns kBadText if it is not UTF-8 (overlong, surrogate,
// truncated). REQUIRES: `text` is not empty.
char32_t TakeCharacter(std::string_view* text);
bool IsUtf8(std::string_view text);

// Replaces everything that a terminal would act on by escapes: control characters (\x1b), characters that change the
// direction of writing or have no width (\u202e), and bytes that are not UTF-8. Text from other processes reaches
// terminals, logs, pages and metrics only in this form. The message of a Status (result.h) always has it.
std::string Printable(std::string text);
// The same for a JSON document, in which quotes and control characters are already escaped: the rest becomes \u.... and
// the value stays the same.
std::string PrintableJson(std::string_view json);

// Two lower-case digits for each byte.
inline std::string Hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const char byte : bytes) {
    hex += kDigits[static_cast<uint8_t>(byte) >> 4];
    hex += kDigits[static_cast<uint8_t>(byte) & 15];
  }
  return hex;
}

}  // namespace arraybridge
