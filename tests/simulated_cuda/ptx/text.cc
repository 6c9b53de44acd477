// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/ptx/text.h"

#include <algorithm>
#include <cctype>

namespace arraybridge::simulated::ptx {
namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool InWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%'; }

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::vector<Token> All() {
    std::vector<Token> tokens;
    for (SkipSpace(); at_ < text_.size(); SkipSpace()) tokens.push_back(Next());
    tokens.push_back({TokenKind::kEnd, {}, line_});
    return tokens;
  }

 private:
  char Peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void SkipTo(std::string_view mark) {
    const size_t end = std::min(text_.find(mark, at_), text_.size());
    line_ += static_cast<int>(std::count(text_.begin() + at_, text_.begin() + end, '\n'));
    at_ = end;
  }

  void SkipSpace() {
    for (; at_ < text_.size(); ++at_) {
      if (Peek() == '/' && Peek(1) == '/') SkipTo("\n");
      if (Peek() == '/' && Peek(1) == '*') {
        at_ += 2;
        SkipTo("*/");
        ++at_;
        continue;
      }
      if (at_ < text_.size() && std::isspace(static_cast<unsigned char>(Peek())) == 0) return;
      if (Peek() == '\n') ++line_;
    }
  }

  // Ends the token that began at `begin`, here.
  Token Made(TokenKind kind, size_t begin) const { return {kind, text_.substr(begin, at_ - begin), line_}; }

  Token Next() {
    const size_t begin = at_;
    if (IsDigit(Peek())) {
      // A sign belongs to the number only in a decimal exponent.
      const bool decimal = Peek() != '0' || Peek(1) == '.';
      const auto exponent = [&] { return decimal && (Peek(1) == '+' || Peek(1) == '-') && (Peek() | 32) == 'e'; };
      while (InWord(Peek()) || (Peek() == '.' && IsDigit(Peek(1)))) at_ += exponent() ? 2 : 1;
      return Made(TokenKind::kNumber, begin);
    }
    if (InWord(Peek())) {
      while (InWord(Peek())) ++at_;
      return Made(TokenKind::kWord, begin);
    }
    if (Peek() == '.' && InWord(Peek(1))) {
      ++at_;
      while (InWord(Peek()) || (Peek() == ':' && Peek(1) == ':')) at_ += Peek() == ':' ? 2 : 1;
      return Made(TokenKind::kDotted, begin + 1);
    }
    if (Peek() == '"') {
      const size_t end = std::min(text_.find('"', at_ + 1), text_.size() - 1);
      at_ = end + 1;
      return {TokenKind::kText, text_.substr(begin + 1, end - begin - 1), line_};
    }
    ++at_;
    return Made(TokenKind::kCharacter, begin);
  }

  const std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Token> Tokens(std::string_view text) { return Scanner(text).All(); }

}  // namespace arraybridge::simulated::ptx
