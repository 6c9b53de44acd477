// SPDX-License-Identifier: Apache-2.0
// Comparison and selection.
#include "tests/simulated_cuda/ptx/decoder.h"

namespace arraybridge::simulated::ptx {
namespace {

enum class Relation : uint8_t { kEqual, kNotEqual, kLess, kLessOrEqual, kGreater, kGreaterOrEqual, kNumber, kNan };

struct Comparison {
  Relation relation = Relation::kEqual;
  bool unordered = false;  // true if one is a NaN
};

bool ComparisonOf(Decoder& d, Comparison* comparison) {
  static const std::map<std::string_view, Comparison> names = {
      {"eq", {Relation::kEqual}},          {"ne", {Relation::kNotEqual}},
      {"lt", {Relation::kLess}},           {"le", {Relation::kLessOrEqual}},
      {"gt", {Relation::kGreater}},        {"ge", {Relation::kGreaterOrEqual}},
      {"lo", {Relation::kLess}},           {"ls", {Relation::kLessOrEqual}},
      {"hi", {Relation::kGreater}},        {"hs", {Relation::kGreaterOrEqual}},
      {"equ", {Relation::kEqual, true}},   {"neu", {Relation::kNotEqual, true}},
      {"ltu", {Relation::kLess, true}},    {"leu", {Relation::kLessOrEqual, true}},
      {"gtu", {Relation::kGreater, true}}, {"geu", {Relation::kGreaterOrEqual, true}},
      {"num", {Relation::kNumber}},        {"nan", {Relation::kNan, true}},
  };
  for (const auto& [name, known] : names) {
    if (!d.Has(name)) continue;
    *comparison = known;
    return true;
  }
  d.Refuse("its comparison is unknown");
  return false;
}

template <class W>
bool Compares(const Comparison& comparison, W a, W b) {
  if constexpr (std::is_floating_point_v<W>) {
    if (std::isnan(a) || std::isnan(b)) return comparison.unordered;
  }
  switch (comparison.relation) {
    case Relation::kEqual:
      return a == b;
    case Relation::kNotEqual:
      return a != b;
    case Relation::kLess:
      return a < b;
    case Relation::kLessOrEqual:
      return a <= b;
    case Relation::kGreater:
      return a > b;
    case Relation::kGreaterOrEqual:
      return a >= b;
    case Relation::kNumber:
      return true;
    case Relation::kNan:
      return false;
  }
  return false;
}

using Test = std::function<bool(Thread&)>;

// The comparison of operands `first` and the next, of this type.
Test TestOf(Decoder& d, size_t first, const Type& type) {
  Comparison comparison;
  if (!ComparisonOf(d, &comparison)) return nullptr;
  Test test;
  const auto made = [&]<class T>() {
    if constexpr (!kIsTwo<T>) {
      test = [comparison, a = d.SourceAt(first, type), b = d.SourceAt(first + 1, type)](Thread& t) {
        return Compares<Wide<T>>(comparison, As<T>(a.Of(t)), As<T>(b.Of(t)));
      };
    }
  };
  if (!VisitInteger(type, made)) VisitReal(type, made);
  return test;
}

// Combines the result of a comparison with a predicate, if the instruction names a way.
bool Combined(std::string_view way, bool result, bool with) {
  if (way == "and") return result && with;
  if (way == "or") return result || with;
  return way == "xor" ? result != with : result;
}

// `p|q` gets the result and its opposite.
void DecodeSetp(Decoder& d) {
  d.Ignore({"ftz"});
  const std::string way(d.OneOf({"and", "or", "xor"}));
  const bool opposite = d.operands() == (way.empty() ? 4 : 5);
  const size_t first = opposite ? 2 : 1;
  const Type type = d.OnlyType();
  const Test test = TestOf(d, first, type);
  if (test == nullptr) return;
  const Source with = way.empty() ? Source{} : d.SourceAt(first + 2, {TypeKind::kPredicate, 1});
  const Target other = opposite ? d.TargetAt(1) : Target{.sink = true};
  d.run = [to = d.TargetAt(0), other, test, with, way](Thread& t) {
    const bool result = test(t);
    const bool combining = with.Of(t) != 0;
    to.Put(t, Combined(way, result, combining) ? 1 : 0);
    other.Put(t, Combined(way, !result, combining) ? 1 : 0);
  };
}

// The result is a number: all ones or 1.0.
void DecodeSet(Decoder& d) {
  d.Ignore({"ftz"});
  const std::string way(d.OneOf({"and", "or", "xor"}));
  const Type to_type = d.TypeAt(0);
  const Type type = d.TypeAt(1);
  const Test test = to_type.pair ? nullptr : TestOf(d, 1, type);
  if (test == nullptr) return;
  const Source with = way.empty() ? Source{} : d.SourceAt(3, {TypeKind::kPredicate, 1});
  uint64_t yes = ~uint64_t{0};
  VisitReal(to_type, [&]<class T>() {
    if constexpr (!kIsTwo<T>) yes = Bits(T(Wide<T>{1}));
  });
  d.run = [to = d.TargetAt(0), test, with, way, yes](Thread& t) {
    to.Put(t, Combined(way, test(t), with.Of(t) != 0) ? yes : 0);
  };
}

void DecodeSelp(Decoder& d) {
  const Type type = d.OnlyType();
  d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), b = d.SourceAt(2, type),
           which = d.SourceAt(3, {TypeKind::kPredicate, 1})](Thread& t) {
    to.Put(t, (which.Of(t) != 0 ? a : b).Of(t));
  };
}

// The first if the third operand is not negative.
void DecodeSlct(Decoder& d) {
  d.Ignore({"ftz"});
  const Type type = d.TypeAt(0);
  const Type decides = d.TypeAt(1);
  const bool real = decides.kind == TypeKind::kFloat;
  d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), b = d.SourceAt(2, type), c = d.SourceAt(3, decides),
           real](Thread& t) {
    const bool first = real ? As<float>(c.Of(t)) >= 0 : As<int32_t>(c.Of(t)) >= 0;
    to.Put(t, (first ? a : b).Of(t));
  };
}

}  // namespace

const Opcodes& CompareOpcodes() {
  static const Opcodes opcodes = {
      {"setp", &DecodeSetp}, {"set", &DecodeSet}, {"selp", &DecodeSelp}, {"slct", &DecodeSlct}};
  return opcodes;
}

}  // namespace arraybridge::simulated::ptx
