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
