// SPDX-License-Identifier: Apache-2.0
// The Program is a PTX text after parsing: variables and functions, with names of registers and variables resolved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace arraybridge::simulated::ptx {

enum class Space : uint8_t { kGeneric, kGlobal, kConst, kShared, kLocal, kParam };

enum class TypeKind : uint8_t { kBits, kUnsigned, kSigned, kFloat, kBrain, kPredicate };

struct Type {
  TypeKind kind = TypeKind::kBits;
  uint32_t bytes = 0;
  bool pair = false;  // two values of half the bytes each

  bool operator==(const Type&) const = default;
};

// True and the type if `word` names one, such as u32 or f16x2.
bool ParseType(std::string_view word, Type* type);

// Bytes of a variable that hold the address of another one.
struct Relocation {
  uint64_t offset = 0;
  std::string name;
  int64_t added = 0;
  uint32_t bytes = 8;
  bool generic = false;
};

struct Variable {
  std::string name;
  Space space = Space::kGlobal;
  uint64_t align = 1;
  uint64_t bytes = 0;
  bool is_extern = false;
  bool sized_at_launch = false;  // dynamic shared memory
  std::vector<std::byte> initial{};
  std::vector<Relocation> relocations{};
  uint64_t address = 0;  // in its space; for global and constant variables only after they were placed
};

enum class OperandKind : uint8_t {
  kRegister,
  kInteger,
  kReal,
  kSpecial,   // %tid.x and the like
  kVariable,  // its address, plus `added`
  kName,      // of a function, a label or a prototype, or unknown
  kAddress,   // in brackets: parts[0] plus `added`
  kVector,    // in braces
  kSink,      // _
};

struct Operand {
  OperandKind kind = OperandKind::kSink;
  std::string name{};
  uint32_t index = 0;  // of the register
  uint64_t integer = 0;
  double real = 0;
  int64_t added = 0;
  bool negated = false;
  std::shared_ptr<Variable> variable{};
  std::vector<Operand> parts{};
};

struct Instruction {
  int line = 0;
  std::string opcode;
  std::vector<std::string> modifiers;  // types are among them
  std::vector<Operand> operands;       // `a|b` is two operands
  bool guarded = false;
  bool guard_negated = false;
  uint32_t guard = 0;  // a register

  std::string Name() const;  // opcode with modifiers
};

// A parameter or a result of a function: a variable in the parameter space, or a register.
struct Formal {
  std::shared_ptr<Variable> variable;  // null: a register
  uint32_t index = 0;
  uint64_t bytes() const { return variable == nullptr ? 8 : variable->bytes; }
};

struct Function {
  std::string name;
  bool entry = false;
  bool defined = false;
  std::vector<Formal> results;
  std::vector<Formal> parameters;
  uint32_t registers = 0;
  uint64_t param_bytes = 0;
  uint64_t local_bytes = 0;
  uint64_t shared_bytes = 0;  // declared in the function
  std::vector<Instruction> body;
  std::map<std::string, size_t> labels;                        // position in the body
  std::map<std::string, std::vector<std::string>> branchings;  // lists of labels
};

struct Program {
  std::vector<std::shared_ptr<Variable>> variables;  // of the module: global, constant
  std::map<std::string, std::unique_ptr<Function>> functions;
  uint64_t shared_bytes = 0;
  // What is wrong with the text, with the line; empty if nothing is.
  std::string error;
};

Program Parse(std::string_view text);

inline uint64_t RoundUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

}  // namespace arraybridge::simulated::ptx
