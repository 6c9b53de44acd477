// SPDX-License-Identifier: Apache-2.0
// Arithmetic with floating-point numbers. Approximate instructions give the nearest value or close to it, so a result
// may differ from hardware's in the last bits.
#include <algorithm>
#include <cfenv>

#include "tests/simulated_cuda/ptx/decoder.h"
#include "tests/simulated_cuda/ptx/rounding.h"

namespace arraybridge::simulated::ptx {
namespace {

// What an instruction does besides its operation.
struct Rules {
  int rounding = FE_TONEAREST;
  bool flush = false;     // numbers below the normal ones are zero
  bool saturate = false;  // to [0, 1]
  bool relu = false;      // nothing below 0
};

Rules RulesOf(Decoder& d) {
  Rules rules;
  rules.rounding = RoundingNamed(d.OneOf({"rn", "rz", "rm", "rp"}));
  rules.flush = d.Has("ftz");
  rules.saturate = d.Has("sat");
  rules.relu = d.Has("relu");
  return rules;
}

template <class W>
W Flushed(W value, bool flush) {
  return flush && std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(W{0}, value) : value;
}

template <class W>
W Ruled(W value, const Rules& rules) {
  if (rules.flush) value = Flushed(value, true);
  if (rules.saturate) value = std::isnan(value) ? W{0} : std::clamp(value, W{0}, W{1});
  if (rules.relu && value < 0) value = 0;
  return value;
}

// Wraps an operation on wide values: `operation(a, b, c)` under the rules.
template <class Operation>
auto Under(const Rules& rules, Operation operation) {
  return [rules, operation](auto first, auto... more) {
    using T = decltype(first);
    using W = Wide<T>;
    if (rules.rounding == FE_TONEAREST) {
      return T(Ruled<W>(operation(Flushed<W>(first, rules.flush), Flushed<W>(more, rules.flush)...), rules));
    }
    const Rounding scope(rules.rounding);
    return T(
        Ruled<W>(Kept(operation(Kept(Flushed<W>(first, rules.flush)), Kept(Flushed<W>(more, rules.flush))...)), rules));
  };
}

template <class Operation>
void DecodeUnary(Decoder& d, Operation operation) {
  d.Ignore({"approx", "full"});
  const Type type = d.OnlyType();
  const Rules rules = RulesOf(d);
  VisitReal(type, [&]<class T>() { Unary<T>(d, type, Under(rules, operation)); });
}
template <class Operation>
void DecodeBinary(Decoder& d, Operation operation) {
  d.Ignore({"approx", "full"});
  const Type type = d.OnlyType();
  const Rules rules = RulesOf(d);
  VisitReal(type, [&]<class T>() { Binary<T>(d, type, Under(rules, operation)); });
}

// One rounding at the end.
template <class W>
W Fused(W a, W b, W c) {
  return std::fma(a, b, c);
}

void DecodeFma(Decoder& d) {
  const Type type = d.OnlyType();
  const Rules rules = RulesOf(d);
  VisitReal(type, [&]<class T>() {
    Ternary<T>(d, type, Under(rules, [](auto a, auto b, auto c) { return Fused(a, b, c); }));
  });
}

// The sign of zero counts: -0 is less than +0. A number wins over a NaN, unless the instruction says otherwise.
template <class W>
W Lesser(W a, W b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? b : a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

void DecodeExtreme(Decoder& d, bool greatest) {
  const bool keeps_nan = d.Has("NaN");
  DecodeBinary(d, [greatest, keeps_nan](auto a, auto b) {
    using W = decltype(a);
    if (keeps_nan && (std::isnan(a) || std::isnan(b))) return std::numeric_limits<W>::quiet_NaN();
    return greatest ? -Lesser<W>(-a, -b) : Lesser<W>(a, b);
  });
}

void DecodeCopySign(Decoder& d) {
  DecodeBinary(d, [](auto a, auto b) { return std::copysign(b, a); });
}

template <class W>
bool Tests(std::string_view property, W value) {
  const int kind = std::fpclassify(value);
  if (property == "finite") return std::isfinite(value);
  if (property == "infinite") return kind == FP_INFINITE;
  if (property == "number") return kind != FP_NAN;
  if (property == "notanumber") return kind == FP_NAN;
  return kind == (property == "normal" ? FP_NORMAL : FP_SUBNORMAL);
}

void DecodeTest(Decoder& d) {
  const std::string property(d.OneOf({"finite", "infinite", "number", "notanumber", "normal", "subnormal"}));
  const Type type = d.OnlyType();
  if (property.empty()) d.Refuse("its property is unknown");
  VisitReal(type, [&]<class T>() {
    if constexpr (!kIsTwo<T>) {
      d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), property](Thread& t) {
        to.Put(t, Tests<Wide<T>>(property, As<T>(a.Of(t))) ? 1 : 0);
      };
    }
  });
}

}  // namespace

const Opcodes& RealOpcodes() {
  static const Opcodes opcodes = {
      {"add", [](Decoder& d) { DecodeBinary(d, [](auto a, auto b) { return a + b; }); }},
      {"sub", [](Decoder& d) { DecodeBinary(d, [](auto a, auto b) { return a - b; }); }},
      {"mul", [](Decoder& d) { DecodeBinary(d, [](auto a, auto b) { return a * b; }); }},
      {"div", [](Decoder& d) { DecodeBinary(d, [](auto a, auto b) { return a / b; }); }},
      {"fma", &DecodeFma},
      {"mad", &DecodeFma},
      {"neg", [](Decoder& d) { DecodeUnary(d, [](auto a) { return -a; }); }},
      {"abs", [](Decoder& d) { DecodeUnary(d, [](auto a) { return std::fabs(a); }); }},
      {"min", [](Decoder& d) { DecodeExtreme(d, false); }},
      {"max", [](Decoder& d) { DecodeExtreme(d, true); }},
      {"rcp", [](Decoder& d) { DecodeUnary(d, [](auto a) { return decltype(a){1} / a; }); }},
      {"sqrt", [](Decoder& d) { DecodeUnary(d, [](auto a) { return std::sqrt(a); }); }},
      {"rsqrt", [](Decoder& d) { DecodeUnary(d, [](auto a) { return decltype(a){1} / std::sqrt(a); }); }},
      {"sin", [](Decoder& d) { DecodeUnary(d, [](auto a) { return std::sin(a); }); }},
      {"cos", [](Decoder& d) { DecodeUnary(d, [](auto a) { return std::cos(a); }); }},
      {"ex2", [](Decoder& d) { DecodeUnary(d, [](auto a) { return std::exp2(a); }); }},
      {"lg2", [](Decoder& d) { DecodeUnary(d, [](auto a) { return std::log2(a); }); }},
      {"tanh", [](Decoder& d) { DecodeUnary(d, [](auto a) { return std::tanh(a); }); }},
      {"copysign", &DecodeCopySign},
      {"testp", &DecodeTest},
  };
  return opcodes;
}

}  // namespace arraybridge::simulated::ptx
