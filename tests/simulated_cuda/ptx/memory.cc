// SPDX-License-Identifier: Apache-2.0
// Loads and stores, addresses of spaces, and fences, which have nothing to order here.
#include "tests/simulated_cuda/ptx/decoder.h"

namespace arraybridge::simulated::ptx {
namespace {

// Caches and orders: here each access is complete when the next one begins.
void IgnoreOrder(Decoder& d) {
  d.Ignore({"volatile", "weak", "relaxed", "acquire", "release", "acq_rel", "mmio", "cta", "cluster", "gpu", "sys"});
  d.Ignore({"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified"});
  d.Ignore({"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"});
  d.Ignore({"L2::evict_normal", "L2::evict_first", "L2::evict_last", "L2::64B", "L2::128B", "L2::256B"});
}

size_t Elements(Decoder& d) {
  const std::string_view count = d.OneOf({"v2", "v4", "v8"});
  return count.empty() ? 1 : static_cast<size_t>(count[1] - '0');
}

// The operands of a vector, or the one.
const std::vector<Operand> Parts(Decoder& d, size_t nth, size_t count) {
  const Operand& operand = d.At(nth);
  if (count == 1) return {operand};
  if (operand.kind != OperandKind::kVector || operand.parts.size() != count) d.Refuse("a vector is missing");
  return operand.parts;
}

uint64_t Extended(uint64_t value, const Type& type) {
  uint64_t extended = value;
  VisitInteger(type, [&]<class T>() { extended = Bits(As<T>(value)); });
  return extended;
}

void DecodeLoad(Decoder& d) {
  IgnoreOrder(d);
  const Space space = d.SpaceOr(Space::kGeneric);
  const size_t count = Elements(d);
  const Type type = d.OnlyType();
  std::vector<Target> targets;
  for (const Operand& part : Parts(d, 0, count)) targets.push_back(d.TargetOf(part));
  d.run = [targets, from = d.AddressAt(1), space, type](Thread& t) {
    const std::byte* bytes = t.Memory(space, from.Of(t), type.bytes * targets.size(), false);
    if (bytes == nullptr) return;
    for (size_t i = 0; i < targets.size(); ++i) {
      uint64_t value = 0;
      std::memcpy(&value, bytes + i * type.bytes, type.bytes);
      targets[i].Put(t, Extended(value, type));
    }
  };
}

void DecodeStore(Decoder& d) {
  IgnoreOrder(d);
  const Space space = d.SpaceOr(Space::kGeneric);
  const size_t count = Elements(d);
  const Type type = d.OnlyType();
  std::vector<Source> sources;
  for (const Operand& part : Parts(d, 1, count)) sources.push_back(d.SourceOf(part, type));
  d.run = [sources, to = d.AddressAt(0), space, type](Thread& t) {
    std::byte* bytes = t.Memory(space, to.Of(t), type.bytes * sources.size(), true);
    if (bytes == nullptr) return;
    for (size_t i = 0; i < sources.size(); ++i) {
      const uint64_t value = sources[i].Of(t);
      std::memcpy(bytes + i * type.bytes, &value, type.bytes);
    }
  };
}

// Between an address of a space and a generic one.
void DecodeAddress(Decoder& d) {
  const bool to_space = d.Has("to");
  const uint64_t window = WindowOf(d.SpaceOr(Space::kGlobal));
  const Type type = d.OnlyType();
  d.run = [to = d.TargetAt(0), from = d.SourceAt(1, type), window, to_space](Thread& t) {
    to.Put(t, to_space ? from.Of(t) - window : from.Of(t) + window);
  };
}

void DecodeIsSpace(Decoder& d) {
  const Space space = d.SpaceOr(Space::kGlobal);
  d.run = [to = d.TargetAt(0), from = d.SourceAt(1, {TypeKind::kBits, 8}), space](Thread& t) {
    to.Put(t, (from.Of(t) & kWindowMask) == WindowOf(space) ? 1 : 0);
  };
}

// Only performance or order depends on it.
void DecodeNothing(Decoder& d) {
  for (const std::string& modifier : d.instruction.modifiers) d.Has(modifier);
  if (d.operands() > 0) d.At(d.operands() - 1);
  d.run = [](Thread&) {};
}

}  // namespace

const Opcodes& MemoryOpcodes() {
  static const Opcodes opcodes = {
      {"ld", &DecodeLoad},
      {"ldu", &DecodeLoad},
      {"st", &DecodeStore},
      {"cvta", &DecodeAddress},
      {"isspacep", &DecodeIsSpace},
      {"membar", &DecodeNothing},
      {"fence", &DecodeNothing},
      {"prefetch", &DecodeNothing},
      {"prefetchu", &DecodeNothing},
      {"nanosleep", &DecodeNothing},
      {"griddepcontrol", &DecodeNothing},
      {"pmevent", &DecodeNothing},
  };
  return opcodes;
}

}  // namespace arraybridge::simulated::ptx
