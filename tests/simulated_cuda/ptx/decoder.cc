// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/ptx/decoder.h"

#include <algorithm>

namespace arraybridge::simulated::ptx {
namespace {

const Operand kNoOperand;

void (*OpcodeNamed(std::string_view name))(Decoder&) {
  for (const Opcodes* opcodes : {&IntegerOpcodes(), &BitOpcodes(), &RealOpcodes(), &CompareOpcodes(), &ConvertOpcodes(),
                                 &MemoryOpcodes(), &AtomicOpcodes(), &ControlOpcodes(), &TogetherOpcodes()}) {
    const auto found = opcodes->find(name);
    if (found != opcodes->end()) return found->second;
  }
  return nullptr;
}

// The bits of a number in the code, as a value of the type.
uint64_t BitsOf(const Operand& number, const Type& type) {
  if (number.kind == OperandKind::kInteger) return number.integer;
  if (number.index == type.bytes && number.index != 0) return number.integer;
  return type.bytes == 8 ? Bits(number.real) : Bits(static_cast<float>(number.real));
}

}  // namespace

bool Decoder::Has(std::string_view modifier) {
  bool found = false;
  for (size_t i = 0; i < asked_.size(); ++i) {
    if (instruction.modifiers[i] != modifier) continue;
    asked_[i] = true;
    found = true;
  }
  return found;
}

std::string_view Decoder::OneOf(std::initializer_list<std::string_view> modifiers) {
  for (const std::string_view modifier : modifiers) {
    if (Has(modifier)) return modifier;
  }
  return {};
}

void Decoder::Ignore(std::initializer_list<std::string_view> modifiers) {
  for (const std::string_view modifier : modifiers) Has(modifier);
}

Type Decoder::TypeAt(size_t nth) {
  Type type;
  for (size_t i = 0; i < asked_.size(); ++i) {
    if (!ParseType(instruction.modifiers[i], &type) || nth-- != 0) continue;
    asked_[i] = true;
    return type;
  }
  Refuse("a type is missing");
  return {TypeKind::kBits, 4};
}

bool Decoder::HasType(size_t nth) const {
  Type type;
  const auto types = std::count_if(instruction.modifiers.begin(), instruction.modifiers.end(),
                                   [&](const std::string& modifier) { return ParseType(modifier, &type); });
  return static_cast<size_t>(types) > nth;
}

Space Decoder::SpaceOr(Space otherwise) {
  if (Has("global")) return Space::kGlobal;
  if (Has("const")) return Space::kConst;
  if (OneOf({"shared", "shared::cta"}) != "") return Space::kShared;
  if (Has("local")) return Space::kLocal;
  if (OneOf({"param", "param::entry", "param::func"}) != "") return Space::kParam;
  return otherwise;
}

const Operand& Decoder::At(size_t nth) {
  operands_asked_ = std::max(operands_asked_, nth + 1);
  if (nth < operands()) return instruction.operands[nth];
  Refuse("operand " + std::to_string(nth + 1) + " is missing");
  return kNoOperand;
}

Target Decoder::TargetAt(size_t nth) { return TargetOf(At(nth)); }

Target Decoder::TargetOf(const Operand& operand) {
  if (operand.kind == OperandKind::kSink) return {.sink = true};
  if (operand.kind != OperandKind::kRegister) Refuse("'" + operand.name + "' is not a register");
  return {.index = operand.index};
}

Source Decoder::SourceOf(const Operand& operand, const Type& type) {
  switch (operand.kind) {
    case OperandKind::kRegister:
      return {.kind = Source::Kind::kRegister, .index = operand.index, .negated = operand.negated};
    case OperandKind::kInteger:
    case OperandKind::kReal:
      return {.value = BitsOf(operand, type)};
    case OperandKind::kVariable:
      if (operand.variable->is_extern && operand.variable->address == 0 && operand.variable->space != Space::kShared) {
        Refuse("'" + operand.name + "' is defined in no module");
      }
      return {.kind = operand.variable->space == Space::kLocal ? Source::Kind::kLocal : Source::Kind::kValue,
              .value = operand.variable->address + static_cast<uint64_t>(operand.added)};
    case OperandKind::kSpecial: {
      const auto special = SpecialRegister(operand.name);
      if (special == nullptr) Refuse("the register '" + operand.name + "' is unknown");
      return {.kind = Source::Kind::kSpecial, .special = special};
    }
    default:
      Refuse(operand.name.empty() ? "an operand has an unknown form" : "'" + operand.name + "' is unknown");
      return {};
  }
}

Address Decoder::AddressAt(size_t nth) {
  const Operand& operand = At(nth);
  if (operand.kind != OperandKind::kAddress) {
    Refuse("an address is missing");
    return {};
  }
  return {SourceOf(operand.parts[0], {TypeKind::kBits, 8}), operand.added};
}

void Decoder::Refuse(const std::string& why) {
  if (error.empty()) error = why;
}

void Decoder::Finish() {
  for (size_t i = 0; i < asked_.size(); ++i) {
    if (!asked_[i]) Refuse("the modifier '." + instruction.modifiers[i] + "' is unknown");
  }
  if (run == nullptr) Refuse("it is unknown for this type");
  if (operands() > operands_asked_) Refuse("it has more operands than are known");
}

void Decode(const Linkage& linkage, Code& code) {
  const Function& function = *code.function;
  code.steps.reserve(function.body.size());
  for (const Instruction& instruction : function.body) {
    Decoder decoder(function, instruction, linkage);
    const auto opcode = OpcodeNamed(instruction.opcode);
    if (opcode == nullptr) decoder.Refuse("the opcode is unknown");
    if (opcode != nullptr) opcode(decoder);
    if (opcode != nullptr) decoder.Finish();
    if (!decoder.error.empty() && code.error.empty()) {
      code.error = "line " + std::to_string(instruction.line) + ": '" + instruction.Name() +
                   "' is not simulated: " + decoder.error;
    }
    code.steps.push_back(
        {std::move(decoder.run), instruction.guarded, instruction.guard_negated, instruction.guard, instruction.line});
  }
}

}  // namespace arraybridge::simulated::ptx
