// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/ptx/reader.h"

#include <bit>
#include <cstdlib>

namespace arraybridge::simulated::ptx {

const Token& Reader::Take() {
  const Token& token = Now();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Reader::TakeIf(char character) {
  if (!Now().Is(character)) return false;
  Take();
  return true;
}

bool Reader::TakeIfDotted(std::string_view word) {
  if (!Now().IsDotted(word)) return false;
  Take();
  return true;
}

void Reader::Expect(char character) {
  if (!TakeIf(character)) {
    Fail(std::string("'") + character + "' is expected instead of '" + std::string(Now().text) + "'");
  }
}

std::string Reader::Word() {
  if (Now().kind != TokenKind::kWord) Fail("a name is expected instead of '" + std::string(Now().text) + "'");
  return std::string(Take().text);
}

void Reader::SkipLine() {
  for (const int line = Now().line; !AtEnd() && Now().line == line;) Take();
}

void Reader::SkipBraces() {
  int depth = 0;
  do {
    depth += Now().Is('{') ? 1 : Now().Is('}') ? -1 : 0;
    Take();
  } while (depth > 0 && !AtEnd());
}

void Reader::FailAt(int line, const std::string& why) {
  if (error.empty()) error = "line " + std::to_string(line) + ": " + why;
}

int64_t Reader::Integer() {
  const bool negative = TakeIf('-');
  const Operand number = Number(negative);
  if (number.kind != OperandKind::kInteger) Fail("an integer is expected");
  return static_cast<int64_t>(number.integer);
}

const Symbol* Reader::Find(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto found = scope->find(name);
    if (found != scope->end()) return &found->second;
  }
  return nullptr;
}

Operand Reader::Number(bool negative) {
  Operand operand{.kind = OperandKind::kInteger};
  if (Now().kind != TokenKind::kNumber) {
    Fail("a number is expected instead of '" + std::string(Now().text) + "'");
    return operand;
  }
  std::string text(Take().text);
  char* end = nullptr;
  const char second = text.size() > 1 ? static_cast<char>(text[1] | 32) : '\0';
  if (text[0] == '0' && (second == 'f' || second == 'd')) {
    const uint64_t bits = std::strtoull(text.c_str() + 2, &end, 16);
    operand.kind = OperandKind::kReal;
    operand.real = second == 'd' ? std::bit_cast<double>(bits)
                                 : static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    // A bit pattern stays exact, because a conversion would change signalling NaNs.
    operand.integer = bits;
    operand.index = second == 'd' ? 8 : 4;
  } else if (text.find('.') != std::string::npos || (second != 'x' && text.find_first_of("eE") != std::string::npos)) {
    operand.kind = OperandKind::kReal;
    operand.real = std::strtod(text.c_str(), &end);
  } else if (second == 'b') {
    operand.integer = std::strtoull(text.c_str() + 2, &end, 2);
  } else {
    operand.integer = std::strtoull(text.c_str(), &end, 0);
  }
  if (*end == 'U') ++end;
  if (*end != '\0') Fail("'" + text + "' is not a number");
  if (negative) {
    operand.integer = -operand.integer;
    operand.real = -operand.real;
    operand.index = 0;
  }
  return operand;
}

// A word: a register, a variable, a special register, or the name of something else.
Operand Reader::Name() {
  Operand operand{.kind = OperandKind::kName, .name = Word()};
  if (operand.name == "_") return {};
  if (operand.name == "WARP_SZ") return {.kind = OperandKind::kInteger, .integer = 32};
  if (const Symbol* symbol = Find(operand.name)) {
    operand.kind = symbol->variable == nullptr ? OperandKind::kRegister : OperandKind::kVariable;
    operand.index = symbol->index;
    operand.variable = symbol->variable;
    return operand;
  }
  if (operand.name[0] != '%') return operand;
  operand.kind = OperandKind::kSpecial;
  if (Now().kind == TokenKind::kDotted) operand.name += "." + std::string(Take().text);
  return operand;
}

std::vector<Operand> Reader::List(char end) {
  std::vector<Operand> parts;
  while (!TakeIf(end) && !AtEnd()) {
    parts.push_back(ParseOperand());
    if (!Now().Is(end)) Expect(',');
  }
  return parts;
}

Operand Reader::ParseOperand() {
  if (TakeIf('{')) return {.kind = OperandKind::kVector, .parts = List('}')};
  if (TakeIf('(')) return {.kind = OperandKind::kVector, .parts = List(')')};
  if (TakeIf('!')) {
    Operand operand = Name();
    operand.negated = true;
    return operand;
  }
  if (TakeIf('[')) {
    Operand inside = ParseOperand();
    Operand operand{.kind = OperandKind::kAddress, .added = inside.added};
    inside.added = 0;
    operand.parts.push_back(std::move(inside));
    Expect(']');
    return operand;
  }
  const bool negative = TakeIf('-');
  if (negative || Now().kind == TokenKind::kNumber) return Number(negative);
  Operand operand = Name();
  if (TakeIf('+')) operand.added = Integer();
  if (Now().Is('-')) operand.added = Integer();
  return operand;
}

}  // namespace arraybridge::simulated::ptx
