// SPDX-License-Identifier: Apache-2.0
// Logic, shifts, and counting of bits.
#include <algorithm>
#include <bit>

#include "tests/simulated_cuda/ptx/decoder.h"

namespace arraybridge::simulated::ptx {
namespace {

// Predicates are calculated as bytes.
Type Logical(Decoder& d) {
  const Type type = d.OnlyType();
  return type.kind == TypeKind::kPredicate ? Type{TypeKind::kBits, 1} : type;
}

template <class Operation>
void DecodeLogic(Decoder& d, const Operation& operation) {
  const Type type = Logical(d);
  VisitInteger(
      type, [&]<class T>() { Binary<T>(d, type, [operation](T a, T b) { return static_cast<T>(operation(a, b)); }); });
}

void DecodeNot(Decoder& d) {
  const bool predicate = d.OnlyType().kind == TypeKind::kPredicate;
  const Type type = Logical(d);
  VisitInteger(type, [&]<class T>() {
    Unary<T>(d, type, [predicate](T a) { return static_cast<T>(predicate ? a == 0 : ~a); });
  });
}

void DecodeCnot(Decoder& d) {
  const Type type = d.OnlyType();
  VisitInteger(type, [&]<class T>() { Unary<T>(d, type, [](T a) { return static_cast<T>(a == 0); }); });
}

// Any function of three bits, by its table of eight results.
void DecodeLop3(Decoder& d) {
  const Type type = d.OnlyType();
  d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), b = d.SourceAt(2, type), c = d.SourceAt(3, type),
           table = d.SourceAt(4, type)](Thread& t) {
    const uint64_t x = a.Of(t);
    const uint64_t y = b.Of(t);
    const uint64_t z = c.Of(t);
    uint64_t result = 0;
    for (uint64_t row = 0; row < 8; ++row) {
      if ((table.Of(t) >> row & 1) == 0) continue;
      result |= ((row & 4) != 0 ? x : ~x) & ((row & 2) != 0 ? y : ~y) & ((row & 1) != 0 ? z : ~z);
    }
    to.Put(t, result & 0xFFFFFFFF);
  };
}

// A distance beyond the width gives zero, or copies of the sign.
void DecodeShift(Decoder& d, bool left) {
  const Type type = d.OnlyType();
  VisitInteger(type, [&]<class T>() {
    d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), b = d.SourceAt(2, {TypeKind::kUnsigned, 4}),
             left](Thread& t) {
      constexpr uint32_t kWidth = 8 * sizeof(T);
      const auto distance = static_cast<uint32_t>(b.Of(t));
      const T value = As<T>(a.Of(t));
      if (left)
        return to.Put(t, distance >= kWidth ? 0 : Bits(static_cast<T>(static_cast<uint64_t>(value) << distance)));
      const bool all = distance >= kWidth;
      to.Put(t, Bits(static_cast<T>(all ? (value < 0 ? -1 : 0) : value >> distance)));
    };
  });
}

// A shift of two registers as one of 64 bits.
void DecodeFunnelShift(Decoder& d) {
  const bool left = d.OneOf({"l", "r"}) == "l";
  const bool clamp = d.OneOf({"clamp", "wrap"}) == "clamp";
  const Type type = d.OnlyType();
  d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), b = d.SourceAt(2, type), c = d.SourceAt(3, type), left,
           clamp](Thread& t) {
    const uint64_t both = (b.Of(t) & 0xFFFFFFFF) << 32 | (a.Of(t) & 0xFFFFFFFF);
    const auto asked = static_cast<uint32_t>(c.Of(t));
    const uint32_t distance = clamp ? std::min<uint32_t>(asked, 32) : asked & 31;
    to.Put(t, (left ? (both << distance) >> 32 : both >> distance) & 0xFFFFFFFF);
  };
}

// The field's bits, the last extended by the sign if the type has one.
void DecodeExtract(Decoder& d) {
  const Type type = d.OnlyType();
  const Type number{TypeKind::kUnsigned, 4};
  VisitInteger(type, [&]<class T>() {
    d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), b = d.SourceAt(2, number),
             c = d.SourceAt(3, number)](Thread& t) {
      constexpr uint32_t kWidth = 8 * sizeof(T);
      const auto start = static_cast<uint32_t>(b.Of(t) & 0xFF);
      const auto length = static_cast<uint32_t>(c.Of(t) & 0xFF);
      const T value = As<T>(a.Of(t));
      const uint32_t last = std::min(start + length, kWidth) - 1;
      const bool negative = std::is_signed_v<T> && length != 0 && (static_cast<uint64_t>(value) >> last & 1) != 0;
      uint64_t field = negative ? ~uint64_t{0} : 0;
      for (uint32_t i = 0; i < length && i < kWidth; ++i) {
        const uint64_t bit = start + i < kWidth ? static_cast<uint64_t>(value) >> (start + i) & 1 : negative ? 1 : 0;
        field = (field & ~(uint64_t{1} << i)) | bit << i;
      }
      to.Put(t, Bits(static_cast<T>(field)));
    };
  });
}

void DecodeInsert(Decoder& d) {
  const Type type = d.OnlyType();
  const Type number{TypeKind::kUnsigned, 4};
  d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), b = d.SourceAt(2, type), c = d.SourceAt(3, number),
           e = d.SourceAt(4, number), width = 8 * type.bytes](Thread& t) {
    const auto start = static_cast<uint32_t>(c.Of(t) & 0xFF);
    const auto length = static_cast<uint32_t>(e.Of(t) & 0xFF);
    uint64_t result = b.Of(t);
    for (uint32_t i = 0; i < length && start + i < width; ++i) {
      const uint64_t bit = a.Of(t) >> i & 1;
      result = (result & ~(uint64_t{1} << (start + i))) | bit << (start + i);
    }
    to.Put(t, result);
  };
}

// The position of the highest bit that is not the sign's; all ones if there is none.
void DecodeFind(Decoder& d) {
  const Type type = d.OnlyType();
  const bool shift = d.Has("shiftamt");
  VisitInteger(type, [&]<class T>() {
    d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), shift](Thread& t) {
      T value = As<T>(a.Of(t));
      if (value < 0) value = static_cast<T>(~value);
      const int width = 8 * sizeof(T);
      const int position = width - 1 - std::countl_zero(static_cast<std::make_unsigned_t<T>>(value));
      if (value == 0) return to.Put(t, 0xFFFFFFFF);
      to.Put(t, static_cast<uint64_t>(shift ? width - 1 - position : position));
    };
  });
}

uint64_t Reversed(uint64_t value, uint32_t width) {
  uint64_t result = 0;
  for (uint32_t i = 0; i < width; ++i) result |= (value >> i & 1) << (width - 1 - i);
  return result;
}

void DecodeReverse(Decoder& d) {
  const Type type = d.OnlyType();
  d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), width = 8 * type.bytes](Thread& t) {
    to.Put(t, Reversed(a.Of(t), width));
  };
}

template <class Count>
void DecodeCount(Decoder& d, const Count& count) {
  const Type type = d.OnlyType();
  d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), width = 8 * type.bytes, count](Thread& t) {
    const uint64_t value = width == 64 ? a.Of(t) : a.Of(t) & 0xFFFFFFFF;
    to.Put(t, static_cast<uint64_t>(count(value, static_cast<int>(width))));
  };
}

// Bytes of two registers, chosen by the digits of a third.
void DecodePermute(Decoder& d) {
  const Type type = d.OnlyType();
  if (const std::string_view mode = d.OneOf({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}); !mode.empty()) {
    return d.Refuse("its mode is unknown");
  }
  d.run = [to = d.TargetAt(0), a = d.SourceAt(1, type), b = d.SourceAt(2, type), c = d.SourceAt(3, type)](Thread& t) {
    const uint64_t both = (b.Of(t) & 0xFFFFFFFF) << 32 | (a.Of(t) & 0xFFFFFFFF);
    uint64_t result = 0;
    for (int i = 0; i < 4; ++i) {
      const uint64_t digit = c.Of(t) >> 4 * i & 0xF;
      uint64_t byte = both >> 8 * (digit & 7) & 0xFF;
      if ((digit & 8) != 0) byte = (byte & 0x80) != 0 ? 0xFF : 0;
      result |= byte << 8 * i;
    }
    to.Put(t, result);
  };
}

}  // namespace

const Opcodes& BitOpcodes() {
  static const Opcodes opcodes = {
      {"and", [](Decoder& d) { DecodeLogic(d, [](auto a, auto b) { return a & b; }); }},
      {"or", [](Decoder& d) { DecodeLogic(d, [](auto a, auto b) { return a | b; }); }},
      {"xor", [](Decoder& d) { DecodeLogic(d, [](auto a, auto b) { return a ^ b; }); }},
      {"not", &DecodeNot},
      {"cnot", &DecodeCnot},
      {"lop3", &DecodeLop3},
      {"shl", [](Decoder& d) { DecodeShift(d, true); }},
      {"shr", [](Decoder& d) { DecodeShift(d, false); }},
      {"shf", &DecodeFunnelShift},
      {"bfe", &DecodeExtract},
      {"bfi", &DecodeInsert},
      {"bfind", &DecodeFind},
      {"brev", &DecodeReverse},
      {"popc", [](Decoder& d) { DecodeCount(d, [](uint64_t value, int) { return std::popcount(value); }); }},
      {"clz",
       [](Decoder& d) {
         DecodeCount(d, [](uint64_t value, int width) { return std::countl_zero(value) - 64 + width; });
       }},
      {"prmt", &DecodePermute},
  };
  return opcodes;
}

}  // namespace arraybridge::simulated::ptx
