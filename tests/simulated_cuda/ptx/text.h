// SPDX-License-Identifier: Apache-2.0
// The words of a PTX text, with their lines. Comments are dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace arraybridge::simulated::ptx {

enum class TokenKind : uint8_t {
  kWord,       // an identifier, as `mov`, `%r1`, `$L__BB0_2`
  kDotted,     // what follows a dot, without it: a directive, a type or a modifier
  kNumber,     // 12, 0x1F, 0f3F800000, 1.5e3
  kText,       // a string, without its quotes
  kCharacter,  // any other character
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;
  int line = 0;

  bool Is(char character) const { return kind == TokenKind::kCharacter && text[0] == character; }
  bool IsDotted(std::string_view word) const { return kind == TokenKind::kDotted && text == word; }
};

// The last token is kEnd. The tokens refer to `text`.
std::vector<Token> Tokens(std::string_view text);

}  // namespace arraybridge::simulated::ptx
