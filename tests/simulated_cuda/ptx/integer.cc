// SPDX-License-Identifier: Apache-2.0
// Arithmetic with integers.
#include <algorithm>

#include "tests/simulated_cuda/ptx/decoder.h"

namespace arraybridge::simulated::ptx {
namespace {

using Full = unsigned __int128;

template <class T>
using Unsigned = std::make_unsigned_t<T>;
template <class T>
constexpr int kBitsOf = 8 * sizeof(T);

// The upper half of the product.
template <class T>
T HighProduct(T a, T b) {
  if constexpr (std::is_signed_v<T>) return static_cast<T>(static_cast<__int128>(a) * b >> kBitsOf<T>);
  return static_cast<T>(static_cast<Full>(a) * b >> kBitsOf<T>);
}

template <class T>
T Product(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

template <class T>
T Clamped(__int128 value) {
  return static_cast<T>(std::clamp<__int128>(value, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

// Sums and differences with the carry flag: `in` uses it, `out` sets it.
template <class T>
uint64_t AddWithCarry(Thread& t, uint64_t a, uint64_t b, bool in, bool out) {
  const Full sum = Full{As<Unsigned<T>>(a)} + As<Unsigned<T>>(b) + (in && t.carry ? 1 : 0);
  if (out) t.carry = (sum >> kBitsOf<T>) != 0;
  return Bits(static_cast<T>(sum));
}
template <class T>
uint64_t SubtractWithCarry(Thread& t, uint64_t a, uint64_t b, bool in, bool out) {
  const Full taken = Full{As<Unsigned<T>>(b)} + (in && t.carry ? 1 : 0);
  if (out) t.carry = As<Unsigned<T>>(a) < taken;
  return Bits(static_cast<T>(As<Unsigned<T>>(a) - taken));
}

// Pairs of 16-bit integers are not simulated.
template <bool kSubtract>
void DecodeSum(Decoder& d, bool in) {
  const Type type = d.OnlyType();
  const bool out = d.Has("cc");
  const bool saturates = d.Has("sat");
  VisitInteger(type, [&]<class T>() {
    if (saturates) {
      return Binary<T>(d, type, [](T a, T b) {
        const __int128 added = kSubtract ? -static_cast<__int128>(b) : static_cast<__int128>(b);
        return Clamped<T>(a + added);
      });
    }
    d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), b = d.SourceAt(2, type), in, out](Thread& t) {
      const auto sum = kSubtract ? SubtractWithCarry<T> : AddWithCarry<T>;
      to.Put(t, sum(t, a.Of(t), b.Of(t), in, out));
    };
  });
}

// The product with twice the bits.
template <class T>
uint64_t WideProduct(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<int64_t>(As<T>(a))) * static_cast<uint64_t>(static_cast<int64_t>(As<T>(b)));
}

void DecodeMul(Decoder& d) {
  const Type type = d.OnlyType();
  const std::string_view part = d.OneOf({"lo", "hi", "wide"});
  VisitInteger(type, [&]<class T>() {
    if (part == "wide") {
      d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), b = d.SourceAt(2, type)](Thread& t) {
        to.Put(t, WideProduct<T>(a.Of(t), b.Of(t)));
      };
    } else {
      Binary<T>(d, type, part == "hi" ? HighProduct<T> : Product<T>);
    }
  });
}

// A product and a sum; `in`: with the carry flag.
void DecodeMad(Decoder& d, bool in) {
  const Type type = d.OnlyType();
  const std::string_view part = d.OneOf({"lo", "hi", "wide"});
  const bool out = d.Has("cc");
  const bool saturates = d.Has("sat");
  if (saturates) d.Refuse("'.sat' is unknown");
  VisitInteger(type, [&]<class T>() {
    const auto product = part == "hi" ? HighProduct<T> : Product<T>;
    const bool wide = part == "wide";
    d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), b = d.SourceAt(2, type), c = d.SourceAt(3, type), product,
             wide, in, out](Thread& t) {
      if (wide) return to.Put(t, WideProduct<T>(a.Of(t), b.Of(t)) + c.Of(t));
      to.Put(t, AddWithCarry<T>(t, Bits(product(As<T>(a.Of(t)), As<T>(b.Of(t)))), c.Of(t), in, out));
    };
  });
}

// Division by zero gives all ones, as on hardware; the remainder then is the dividend.
template <class T>
T Quotient(T a, T b) {
  if (b == 0) return static_cast<T>(~uint64_t{0});
  return static_cast<T>(std::is_signed_v<T> ? static_cast<__int128>(a) / b : static_cast<Full>(a) / b);
}
template <class T>
T Remainder(T a, T b) {
  if (b == 0) return a;
  return static_cast<T>(std::is_signed_v<T> ? static_cast<__int128>(a) % b : static_cast<Full>(a) % b);
}

// The lower 24 bits of both factors.
void DecodeMul24(Decoder& d, bool adds) {
  const Type type = d.OnlyType();
  const int shift = d.OneOf({"lo", "hi"}) == "hi" ? 16 : 0;
  VisitInteger(type, [&]<class T>() {
    const Source c = adds ? d.SourceAt(3, type) : Source{};
    d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), b = d.SourceAt(2, type), c, shift](Thread& t) {
      const auto cut = [](uint64_t value) { return static_cast<int64_t>(As<T>(value << 8)) >> 8; };
      to.Put(t, Bits(static_cast<T>((cut(a.Of(t)) * cut(b.Of(t)) >> shift) + static_cast<int64_t>(As<T>(c.Of(t))))));
    };
  });
}

void DecodeSad(Decoder& d) {
  const Type type = d.OnlyType();
  VisitInteger(type, [&]<class T>() {
    Ternary<T>(d, type,
               [](T a, T b, T c) { return static_cast<T>(__int128{c} + (a < b ? __int128{b} - a : __int128{a} - b)); });
  });
}

// Sums of products of four bytes.
void DecodeDp4a(Decoder& d) {
  const Type first = d.TypeAt(0);
  const Type second = d.TypeAt(1);
  const bool signed_a = first.kind == TypeKind::kSigned;
  const bool signed_b = second.kind == TypeKind::kSigned;
  d.run = [to = d.TargetAt(0), a = d.SourceAt(1, first), b = d.SourceAt(2, second), c = d.SourceAt(3, first), signed_a,
           signed_b](Thread& t) {
    const auto byte = [](uint64_t value, int i, bool is_signed) {
      const uint64_t part = value >> 8 * i & 0xFF;
      return is_signed ? int64_t{static_cast<int8_t>(part)} : static_cast<int64_t>(part);
    };
    int64_t sum = static_cast<int32_t>(c.Of(t));
    for (int i = 0; i < 4; ++i) sum += byte(a.Of(t), i, signed_a) * byte(b.Of(t), i, signed_b);
    to.Put(t, static_cast<uint64_t>(sum));
  };
}

template <class T>
T Negative(T a) {
  return static_cast<T>(-static_cast<uint64_t>(a));
}

bool IsReal(Decoder& d) {
  const TypeKind kind = d.TypeAt(0).kind;
  return kind == TypeKind::kFloat || kind == TypeKind::kBrain;
}

// What the opcode means for numbers of the other kind.
template <class Integer>
void Either(Decoder& d, const char* opcode, const Integer& integer) {
  if (IsReal(d)) return RealOpcodes().at(opcode)(d);
  integer(d, d.OnlyType());
}

void DecodeAdd(Decoder& d) {
  Either(d, "add", [](Decoder& e, const Type&) { DecodeSum<false>(e, false); });
}
void DecodeSub(Decoder& d) {
  Either(d, "sub", [](Decoder& e, const Type&) { DecodeSum<true>(e, false); });
}
void DecodeMulOf(Decoder& d) {
  Either(d, "mul", [](Decoder& e, const Type&) { DecodeMul(e); });
}
void DecodeMadOf(Decoder& d) {
  Either(d, "mad", [](Decoder& e, const Type&) { DecodeMad(e, false); });
}
void DecodeDiv(Decoder& d) {
  Either(d, "div",
         [](Decoder& e, const Type& type) { VisitInteger(type, [&]<class T>() { Binary<T>(e, type, Quotient<T>); }); });
}
void DecodeRem(Decoder& d) {
  const Type type = d.OnlyType();
  VisitInteger(type, [&]<class T>() { Binary<T>(d, type, Remainder<T>); });
}
void DecodeNeg(Decoder& d) {
  Either(d, "neg",
         [](Decoder& e, const Type& type) { VisitInteger(type, [&]<class T>() { Unary<T>(e, type, Negative<T>); }); });
}
void DecodeAbs(Decoder& d) {
  Either(d, "abs", [](Decoder& e, const Type& type) {
    VisitInteger(type, [&]<class T>() { Unary<T>(e, type, [](T a) { return a < 0 ? Negative(a) : a; }); });
  });
}
void DecodeMin(Decoder& d) {
  Either(d, "min", [](Decoder& e, const Type& type) {
    VisitInteger(type, [&]<class T>() { Binary<T>(e, type, [](T a, T b) { return std::min(a, b); }); });
  });
}
void DecodeMax(Decoder& d) {
  Either(d, "max", [](Decoder& e, const Type& type) {
    VisitInteger(type, [&]<class T>() { Binary<T>(e, type, [](T a, T b) { return std::max(a, b); }); });
  });
}

}  // namespace

const Opcodes& IntegerOpcodes() {
  static const Opcodes opcodes = {
      {"add", &DecodeAdd},
      {"sub", &DecodeSub},
      {"mul", &DecodeMulOf},
      {"mad", &DecodeMadOf},
      {"div", &DecodeDiv},
      {"rem", &DecodeRem},
      {"neg", &DecodeNeg},
      {"abs", &DecodeAbs},
      {"min", &DecodeMin},
      {"max", &DecodeMax},
      {"addc", [](Decoder& d) { DecodeSum<false>(d, true); }},
      {"subc", [](Decoder& d) { DecodeSum<true>(d, true); }},
      {"madc", [](Decoder& d) { DecodeMad(d, true); }},
      {"mul24", [](Decoder& d) { DecodeMul24(d, false); }},
      {"mad24", [](Decoder& d) { DecodeMul24(d, true); }},
      {"sad", &DecodeSad},
      {"dp4a", &DecodeDp4a},
  };
  return opcodes;
}

}  // namespace arraybridge::simulated::ptx
