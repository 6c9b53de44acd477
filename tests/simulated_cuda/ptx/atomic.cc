// SPDX-License-Identifier: Apache-2.0
// Atomic operations. The threads of a launch run one after another, so each is atomic among them.
#include <algorithm>

#include "tests/simulated_cuda/ptx/decoder.h"

namespace arraybridge::simulated::ptx {
namespace {

using Change = std::function<uint64_t(uint64_t old, uint64_t operand, uint64_t swapped)>;

template <class T>
Change IntegerChange(std::string_view name) {
  const auto made = [](auto operation) {
    return [operation](uint64_t old, uint64_t with, uint64_t) {
      return Bits(static_cast<T>(operation(As<T>(old), As<T>(with))));
    };
  };
  if (name == "add") return [](uint64_t old, uint64_t with, uint64_t) { return old + with; };
  if (name == "min") return made([](T a, T b) { return std::min(a, b); });
  if (name == "max") return made([](T a, T b) { return std::max(a, b); });
  if (name == "and") return made([](T a, T b) { return a & b; });
  if (name == "or") return made([](T a, T b) { return a | b; });
  if (name == "xor") return made([](T a, T b) { return a ^ b; });
  if (name == "exch") return made([](T, T b) { return b; });
  // Counters that go round.
  if (name == "inc") return made([](T a, T b) { return a >= b ? T{0} : static_cast<T>(a + 1); });
  if (name == "dec") return made([](T a, T b) { return a == 0 || a > b ? b : static_cast<T>(a - 1); });
  if (name != "cas") return nullptr;
  return
      [](uint64_t old, uint64_t expected, uint64_t swapped) { return As<T>(old) == As<T>(expected) ? swapped : old; };
}

template <class T>
Change RealChange(std::string_view name) {
  const auto made = [](auto operation) {
    return [operation](uint64_t old, uint64_t with, uint64_t) {
      return Bits(Each<T>(operation, As<T>(old), As<T>(with)));
    };
  };
  if (name == "add") return made([](auto a, auto b) { return decltype(a)(a + b); });
  if (name == "min") return made([](auto a, auto b) { return b < a ? b : a; });
  if (name == "max") return made([](auto a, auto b) { return a < b ? b : a; });
  return name == "exch" ? made([](auto, auto b) { return b; }) : Change();
}

// With the old value as a result, or as red without.
void DecodeAtomic(Decoder& d, bool has_result) {
  d.Ignore({"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "noftz", "volatile"});
  const Space space = d.SpaceOr(Space::kGeneric);
  const std::string_view name = d.OneOf({"add", "min", "max", "and", "or", "xor", "exch", "inc", "dec", "cas"});
  const Type type = d.OnlyType();
  Change change;
  VisitInteger(type, [&]<class T>() { change = IntegerChange<T>(name); });
  VisitReal(type, [&]<class T>() { change = RealChange<T>(name); });
  if (change == nullptr) return;
  const size_t first = has_result ? 1 : 0;
  const Target to = has_result ? d.TargetAt(0) : Target{.sink = true};
  const Source swapped = name == "cas" ? d.SourceAt(first + 2, type) : Source{};
  d.run = [to, at = d.AddressAt(first), with = d.SourceAt(first + 1, type), swapped, change, space, type](Thread& t) {
    std::byte* bytes = t.Memory(space, at.Of(t), type.bytes, true);
    if (bytes == nullptr) return;
    uint64_t old = 0;
    std::memcpy(&old, bytes, type.bytes);
    const uint64_t changed = change(old, with.Of(t), swapped.Of(t));
    std::memcpy(bytes, &changed, type.bytes);
    to.Put(t, old);
  };
}

}  // namespace

const Opcodes& AtomicOpcodes() {
  static const Opcodes opcodes = {{"atom", [](Decoder& d) { DecodeAtomic(d, true); }},
                                  {"red", [](Decoder& d) { DecodeAtomic(d, false); }}};
  return opcodes;
}

}  // namespace arraybridge::simulated::ptx
