// Texts that cross the boundary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace arraybridge {

// As much of UTF-8 as fits into so many bytes, in whole characters.
inline std::string_view FirstBytes(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0U) == 0x80U) --end;
  return text.substr(0, end);
}

inline constexpr char32_t kBadText = 0xFFFFFFFF;

// Decodes one character and drops it from `text`, which is not empty; kBadText if it is not UTF-8 (overlong, surrogate,
// cut short).
char32_t TakeCharacter(std::string_view* text);
bool IsUtf8(std::string_view text);

// What a terminal would act on, as escapes: control characters (\x1b), those that turn the direction of writing or take
// no room (\u202e), and bytes that are no UTF-8. What others wrote is printed only so.
std::string Printable(std::string_view text);
// Of a document in JSON, where quotes and control characters are escaped already: the same value, with the rest as
// \u....
std::string PrintableJson(std::string_view json);

// Two digits a byte, lower case.
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
