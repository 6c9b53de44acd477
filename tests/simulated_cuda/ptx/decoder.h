// SPDX-License-Identifier: Apache-2.0
// The Decoder turns one instruction into a step. The function of its opcode asks for modifiers, types and operands;
// what it does not ask for is an error, so that a modifier without effect cannot give wrong values.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/simulated_cuda/ptx/program.h"
#include "tests/simulated_cuda/ptx/thread.h"
#include "tests/simulated_cuda/ptx/value.h"

namespace arraybridge::simulated::ptx {

class Decoder;
using Opcodes = std::map<std::string_view, void (*)(Decoder&)>;

// The opcodes of each file.
const Opcodes& IntegerOpcodes();
const Opcodes& BitOpcodes();
const Opcodes& RealOpcodes();
const Opcodes& CompareOpcodes();
const Opcodes& ConvertOpcodes();
const Opcodes& MemoryOpcodes();
const Opcodes& AtomicOpcodes();
const Opcodes& ControlOpcodes();
const Opcodes& TogetherOpcodes();

// What instructions refer to besides their function: other functions.
struct Linkage {
  const Program* program = nullptr;
  std::map<std::string, Code>* codes = nullptr;
};

// Where an operand's value comes from.
struct Source {
  enum class Kind : uint8_t { kRegister, kValue, kSpecial, kLocal } kind = Kind::kValue;
  uint32_t index = 0;
  uint64_t value = 0;
  bool negated = false;  // a predicate
  uint64_t (*special)(const Thread&) = nullptr;

  uint64_t Of(const Thread& thread) const {
    switch (kind) {
      case Kind::kRegister:
        return negated ? static_cast<uint64_t>(thread.Get(index) == 0) : thread.Get(index);
      case Kind::kValue:
        return value;
      case Kind::kSpecial:
        return special(thread);
      case Kind::kLocal:
        return thread.frame().local_base + value;
    }
    return 0;
  }
};

// Where a result goes; a sink takes anything.
struct Target {
  uint32_t index = 0;
  bool sink = false;
  void Put(Thread& thread, uint64_t value) const {
    if (!sink) thread.Put(index, value);
  }
};

struct Address {
  Source base;
  int64_t added = 0;
  uint64_t Of(const Thread& thread) const { return base.Of(thread) + static_cast<uint64_t>(added); }
};

class Decoder {
 public:
  Decoder(const Function& of, const Instruction& decoded, const Linkage& linked)
      : function(of), instruction(decoded), linkage(linked), asked_(decoded.modifiers.size()) {}

  // True if the instruction has this modifier.
  bool Has(std::string_view modifier);
  // The one of these that it has, or an empty word.
  std::string_view OneOf(std::initializer_list<std::string_view> modifiers);
  void Ignore(std::initializer_list<std::string_view> modifiers);
  // The type that is the nth of its modifiers, from 0.
  Type TypeAt(size_t nth);
  Type OnlyType() { return TypeAt(0); }
  bool HasType(size_t nth) const;
  Space SpaceOr(Space otherwise);

  size_t operands() const { return instruction.operands.size(); }
  const Operand& At(size_t nth);
  Target TargetAt(size_t nth);
  Source SourceAt(size_t nth, const Type& type) { return SourceOf(At(nth), type); }
  Source SourceOf(const Operand& operand, const Type& type);
  Address AddressAt(size_t nth);
  Target TargetOf(const Operand& operand);

  // The instruction is not simulated.
  void Refuse(const std::string& why);
  // Refuses what was not asked for.
  void Finish();

  const Function& function;
  const Instruction& instruction;
  const Linkage& linkage;
  std::function<void(Thread&)> run;
  std::string error;

 private:
  std::vector<bool> asked_;
  size_t operands_asked_ = 0;
};

// Decodes the body; what cannot be decoded is in the code's error.
void Decode(const Linkage& linkage, Code& code);

// The reader of a special register, by name; null if it is unknown.
uint64_t (*SpecialRegister(std::string_view name))(const Thread&);

// Calls `visit` with a value of the C++ type, for visit.operator()<T>(). False if the type is not one of the group.
template <class Visit>
bool VisitInteger(const Type& type, Visit&& visit) {
  const bool is_signed = type.kind == TypeKind::kSigned;
  if (type.pair || type.kind == TypeKind::kFloat || type.kind == TypeKind::kBrain) return false;
  if (type.kind == TypeKind::kPredicate) return false;
  switch (type.bytes) {
    case 1:
      is_signed ? visit.template operator()<int8_t>() : visit.template operator()<uint8_t>();
      return true;
    case 2:
      is_signed ? visit.template operator()<int16_t>() : visit.template operator()<uint16_t>();
      return true;
    case 4:
      is_signed ? visit.template operator()<int32_t>() : visit.template operator()<uint32_t>();
      return true;
    default:
      is_signed ? visit.template operator()<int64_t>() : visit.template operator()<uint64_t>();
      return true;
  }
}

template <class Visit>
bool VisitReal(const Type& type, Visit&& visit) {
  const bool half = type.kind == TypeKind::kFloat;
  if (type.kind != TypeKind::kFloat && type.kind != TypeKind::kBrain) return false;
  if (type.pair) {
    half ? visit.template operator()<Two<Half>>() : visit.template operator()<Two<Brain>>();
  } else if (type.bytes == 2) {
    half ? visit.template operator()<Half>() : visit.template operator()<Brain>();
  } else {
    type.bytes == 4 ? visit.template operator()<float>() : visit.template operator()<double>();
  }
  return true;
}

// Applies `operation` to both values of a pair, or to the value.
template <class T, class Operation, class... More>
T Each(const Operation& operation, T first, More... more) {
  if constexpr (kIsTwo<T>) {
    return {operation(first.low, more.low...), operation(first.high, more.high...)};
  } else {
    return operation(first, more...);
  }
}

// Steps with one, two or three sources of one type, which is also the result's.
template <class T, class Operation>
void Unary(Decoder& d, const Type& type, Operation operation) {
  d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), operation](Thread& t) {
    to.Put(t, Bits(Each<T>(operation, As<T>(a.Of(t)))));
  };
}
template <class T, class Operation>
void Binary(Decoder& d, const Type& type, Operation operation) {
  d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), b = d.SourceAt(2, type), operation](Thread& t) {
    to.Put(t, Bits(Each<T>(operation, As<T>(a.Of(t)), As<T>(b.Of(t)))));
  };
}
template <class T, class Operation>
void Ternary(Decoder& d, const Type& type, Operation operation) {
  d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), b = d.SourceAt(2, type), c = d.SourceAt(3, type), operation](
              Thread& t) { to.Put(t, Bits(Each<T>(operation, As<T>(a.Of(t)), As<T>(b.Of(t)), As<T>(c.Of(t))))); };
}

}  // namespace arraybridge::simulated::ptx
