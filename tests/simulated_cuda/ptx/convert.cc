// SPDX-License-Identifier: Apache-2.0
// Conversion between types, and moves, which also pack and unpack registers.
#include <algorithm>

#include "tests/simulated_cuda/ptx/decoder.h"
#include "tests/simulated_cuda/ptx/rounding.h"

namespace arraybridge::simulated::ptx {
namespace {

struct Conversion {
  int rounding = FE_TONEAREST;
  bool to_integral = false;  // a real number without fraction
  bool saturate = false;
  bool flush = false;
  bool relu = false;
};

// Beyond the range, the nearest value; a NaN gives 0, or half of the range for 64 bits as on hardware.
template <class To>
To ToInteger(double value) {
  if (std::isnan(value)) return sizeof(To) == 8 ? static_cast<To>(uint64_t{1} << 63) : To{0};
  const double least = static_cast<double>(std::numeric_limits<To>::min());
  const double beyond = std::ldexp(1.0, std::numeric_limits<To>::digits);
  if (value < least) return std::numeric_limits<To>::min();
  if (value >= beyond) return std::numeric_limits<To>::max();
  return static_cast<To>(value);
}

template <class To, class From>
To IntegerToInteger(From value, bool saturate) {
  if (!saturate) return static_cast<To>(value);
  return static_cast<To>(std::clamp<__int128>(value, std::numeric_limits<To>::min(), std::numeric_limits<To>::max()));
}

template <class To, class From>
To ToReal(From from, const Conversion& how) {
  using W = Wide<To>;
  const Rounding scope(how.rounding);
  if constexpr (std::is_integral_v<From>) {
    const W value = Kept(static_cast<W>(Kept(from)));
    return To(how.saturate ? std::clamp(value, W{0}, W{1}) : value);
  } else {
    auto wide = Kept(static_cast<Wide<From>>(from));
    if (how.flush && std::fpclassify(wide) == FP_SUBNORMAL) wide = std::copysign(decltype(wide){0}, wide);
    if (how.to_integral) wide = Kept(std::nearbyint(wide));
    W value = Kept(static_cast<W>(wide));
    if (how.saturate) value = std::isnan(value) ? W{0} : std::clamp(value, W{0}, W{1});
    if (how.relu && value < 0) value = 0;
    return To(value);
  }
}

template <class To, class From>
To Converted(From from, const Conversion& how) {
  if constexpr (kIsReal<To>) {
    return ToReal<To>(from, how);
  } else if constexpr (kIsReal<From>) {
    const Rounding scope(how.rounding);
    return ToInteger<To>(Kept(std::nearbyint(Kept(static_cast<double>(static_cast<Wide<From>>(from))))));
  } else {
    return IntegerToInteger<To>(from, how.saturate);
  }
}

// Calls `visit` for a single value of any type.
template <class Visit>
void VisitAny(const Type& type, Visit&& visit) {
  if (VisitInteger(type, visit)) return;
  VisitReal(type, [&]<class T>() {
    if constexpr (!kIsTwo<T>) visit.template operator()<T>();
  });
}

// Two floats become a pair, the first in the upper half.
void DecodePairing(Decoder& d, const Type& to, const Type& from, const Conversion& how) {
  if (from != Type{TypeKind::kFloat, 4}) return;
  VisitReal(to, [&]<class T>() {
    if constexpr (kIsTwo<T>) {
      d.run = [target = d.TargetAt(0), high = d.SourceAt(1, from), low = d.SourceAt(2, from), how](Thread& t) {
        using Part = decltype(T::low);
        target.Put(t, Bits(T{ToReal<Part>(As<float>(low.Of(t)), how), ToReal<Part>(As<float>(high.Of(t)), how)}));
      };
    }
  });
}

void DecodeCvt(Decoder& d) {
  Conversion how;
  const std::string_view integral = d.OneOf({"rni", "rzi", "rmi", "rpi"});
  how.to_integral = !integral.empty();
  how.rounding = RoundingNamed(how.to_integral ? integral : d.OneOf({"rn", "rz", "rm", "rp"}));
  how.saturate = d.Has("sat");
  how.flush = d.Has("ftz");
  how.relu = d.Has("relu");
  const Type to = d.TypeAt(0);
  const Type from = d.TypeAt(1);
  const bool narrow = (to.kind == TypeKind::kFloat || to.kind == TypeKind::kBrain) && (to.bytes == 2 || to.pair);
  if (narrow && how.rounding != FE_TONEAREST && !how.to_integral) return d.Refuse("it rounds to nearest alone");
  if (to.pair) return DecodePairing(d, to, from, how);
  VisitAny(to, [&]<class To>() {
    VisitAny(from, [&]<class From>() {
      d.run = [target = d.TargetAt(0), source = d.SourceAt(1, from), how](Thread& t) {
        target.Put(t, Bits(Converted<To>(As<From>(source.Of(t)), how)));
      };
    });
  });
}

void DecodePack(Decoder& d, const Type& type) {
  std::vector<Source> parts;
  const auto& operands = d.At(1).parts;
  if (operands.size() < 2) return;
  const auto bytes = static_cast<uint32_t>(type.bytes / operands.size());
  for (const Operand& part : operands) parts.push_back(d.SourceOf(part, {TypeKind::kBits, bytes}));
  d.run = [to = d.TargetAt(0), parts, bits = 8 * bytes](Thread& t) {
    uint64_t value = 0;
    for (size_t i = 0; i < parts.size(); ++i) value |= (parts[i].Of(t) & ((uint64_t{1} << bits) - 1)) << bits * i;
    to.Put(t, value);
  };
}

void DecodeUnpack(Decoder& d, const Type& type) {
  std::vector<Target> parts;
  for (const Operand& part : d.At(0).parts) parts.push_back(d.TargetOf(part));
  if (parts.size() < 2) return;
  d.run = [parts, from = d.SourceAt(1, type), bits = 8 * type.bytes / parts.size()](Thread& t) {
    const uint64_t value = from.Of(t);
    for (size_t i = 0; i < parts.size(); ++i) parts[i].Put(t, value >> bits * i & ((uint64_t{1} << bits) - 1));
  };
}

void DecodeMov(Decoder& d) {
  const Type type = d.OnlyType();
  if (d.At(1).kind == OperandKind::kVector) return DecodePack(d, type);
  if (d.At(0).kind == OperandKind::kVector) return DecodeUnpack(d, type);
  d.run = [to = d.TargetAt(0), from = d.SourceAt(1, type)](Thread& t) { to.Put(t, from.Of(t)); };
}

}  // namespace

const Opcodes& ConvertOpcodes() {
  static const Opcodes opcodes = {{"cvt", &DecodeCvt}, {"mov", &DecodeMov}};
  return opcodes;
}

}  // namespace arraybridge::simulated::ptx
