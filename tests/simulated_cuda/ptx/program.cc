// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/ptx/program.h"

namespace arraybridge::simulated::ptx {

bool ParseType(std::string_view word, Type* type) {
  static const std::map<std::string_view, Type> types = {
      {"b8", {TypeKind::kBits, 1}},           {"b16", {TypeKind::kBits, 2}},
      {"b32", {TypeKind::kBits, 4}},          {"b64", {TypeKind::kBits, 8}},
      {"u8", {TypeKind::kUnsigned, 1}},       {"u16", {TypeKind::kUnsigned, 2}},
      {"u32", {TypeKind::kUnsigned, 4}},      {"u64", {TypeKind::kUnsigned, 8}},
      {"s8", {TypeKind::kSigned, 1}},         {"s16", {TypeKind::kSigned, 2}},
      {"s32", {TypeKind::kSigned, 4}},        {"s64", {TypeKind::kSigned, 8}},
      {"f16", {TypeKind::kFloat, 2}},         {"f32", {TypeKind::kFloat, 4}},
      {"f64", {TypeKind::kFloat, 8}},         {"bf16", {TypeKind::kBrain, 2}},
      {"pred", {TypeKind::kPredicate, 1}},    {"f16x2", {TypeKind::kFloat, 4, true}},
      {"bf16x2", {TypeKind::kBrain, 4, true}}};
  const auto found = types.find(word);
  if (found == types.end()) return false;
  *type = found->second;
  return true;
}

std::string Instruction::Name() const {
  std::string name = opcode;
  for (const std::string& modifier : modifiers) name += "." + modifier;
  return name;
}

}  // namespace arraybridge::simulated::ptx
