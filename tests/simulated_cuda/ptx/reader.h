// SPDX-License-Identifier: Apache-2.0
// The Reader walks over the tokens of a PTX text. It keeps the first error, and the names of all scopes that are open.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/simulated_cuda/ptx/program.h"
#include "tests/simulated_cuda/ptx/text.h"

namespace arraybridge::simulated::ptx {

// What a name stands for: a register, or a variable.
struct Symbol {
  std::shared_ptr<Variable> variable;  // null: a register
  uint32_t index = 0;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : tokens_(Tokens(text)) {}

  const Token& Now(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& Take();
  // Takes the character if it is next.
  bool TakeIf(char character);
  bool TakeIfDotted(std::string_view word);
  void Expect(char character);
  std::string Word();
  void SkipLine();
  // Skips what is between the next bracket and its counterpart.
  void SkipBraces();
  bool AtEnd() const { return Now().kind == TokenKind::kEnd || !error.empty(); }

  void Fail(const std::string& why) { FailAt(Now().line, why); }
  void FailAt(int line, const std::string& why);

  int64_t Integer();
  Operand ParseOperand();

  void OpenScope() { scopes_.emplace_back(); }
  void CloseScope() { scopes_.pop_back(); }
  void Declare(const std::string& name, Symbol symbol) { scopes_.back()[name] = std::move(symbol); }
  const Symbol* Find(const std::string& name) const;

  std::string error;

 private:
  Operand Number(bool negative);
  Operand Name();
  std::vector<Operand> List(char end);

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  std::vector<std::map<std::string, Symbol>> scopes_ = std::vector<std::map<std::string, Symbol>>(1);
};

}  // namespace arraybridge::simulated::ptx
