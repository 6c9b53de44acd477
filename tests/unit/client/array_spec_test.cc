// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/array_spec.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "client/memory/layout.h"

namespace arraybridge {
namespace {

ArraySpec Floats(std::vector<int64_t> shape, std::vector<int64_t> strides = {}, uint64_t offset = 0) {
  return {{2, 32, 1}, "float32", std::move(shape), std::move(strides), offset};
}

TEST(ArraySpec, CountsElementsAndBytes) {
  EXPECT_EQ(*Floats({}).elements(), 1u);
  EXPECT_EQ(*Floats({3, 4}).elements(), 12u);
  EXPECT_EQ(*Floats({3, 4}).compact_bytes(), 48u);
  EXPECT_EQ(*Floats({3, 0, INT64_MAX}).elements(), 0u);
}

TEST(ArraySpec, RoundsPackedElementsUpOverTheWholeArray) {
  ArraySpec spec{{17, 4, 1}, "float4_e2m1fn", {3}, {}, 0};
  EXPECT_EQ(*spec.compact_bytes(), 2u);
  spec.type = {15, 6, 1};
  EXPECT_EQ(*spec.compact_bytes(), 3u);
}

TEST(ArraySpec, RefusesNegativeAndOverflowingShapes) {
  EXPECT_EQ(Floats({-1}).elements().status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Floats({0, -1}).elements().status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(Floats({int64_t{1} << 32, int64_t{1} << 32}).elements().ok());
  EXPECT_FALSE(Floats({int64_t{1} << 61}).compact_bytes().ok());
  EXPECT_FALSE((ArraySpec{{2, 0, 1}, "", {1}, {}, 0}.compact_bytes().ok()));
}

TEST(ArraySpec, RankLimit) {
  EXPECT_TRUE(Floats(std::vector<int64_t>(layout::kRankMax, 1)).elements().ok());
  EXPECT_FALSE(Floats(std::vector<int64_t>(layout::kRankMax + 1, 1)).elements().ok());
}

TEST(ArraySpec, CompactIgnoresStridesOfSizeOne) {
  EXPECT_TRUE(Floats({2, 3}).compact());
  EXPECT_TRUE(Floats({2, 3}, {3, 1}).compact());
  EXPECT_TRUE(Floats({2, 1, 3}, {3, 77, 1}).compact());
  EXPECT_TRUE(Floats({2, 0}, {9, 9}).compact());
  EXPECT_FALSE(Floats({2, 3}, {1, 2}).compact());
  EXPECT_FALSE(Floats({2, 3}, {-3, 1}).compact());
  EXPECT_FALSE(Floats({2, 3}, {3}).compact());
}

TEST(ArraySpec, CompactStrides) {
  EXPECT_EQ(CompactStrides({2, 3, 4}), (std::vector<int64_t>{12, 4, 1}));
  EXPECT_EQ(CompactStrides({2, 0, 4}), (std::vector<int64_t>{4, 4, 1}));
  EXPECT_TRUE(CompactStrides({}).empty());
}

TEST(ArraySpec, CheckInsideCompact) {
  EXPECT_TRUE(Floats({3, 4}, {}, 16).CheckInside(64).ok());
  EXPECT_FALSE(Floats({3, 4}, {}, 17).CheckInside(64).ok());
  EXPECT_TRUE(Floats({0}, {}, 64).CheckInside(64).ok());
  EXPECT_FALSE(Floats({0}, {}, 65).CheckInside(64).ok());
  EXPECT_FALSE(Floats({1}, {}, std::numeric_limits<uint64_t>::max()).CheckInside(64).ok());
}

TEST(ArraySpec, CheckInsideStrided) {
  EXPECT_TRUE(Floats({4}, {2}).CheckInside(28).ok());
  EXPECT_FALSE(Floats({4}, {2}).CheckInside(27).ok());
  EXPECT_TRUE(Floats({4}, {-1}, 12).CheckInside(16).ok());
  EXPECT_FALSE(Floats({4}, {-1}, 11).CheckInside(16).ok());
  EXPECT_TRUE(Floats({1000}, {0}).CheckInside(4).ok());
  EXPECT_FALSE(Floats({2, 2}, {1}).CheckInside(64).ok());
}

TEST(ArraySpec, CheckInsideSurvivesHostileStrides) {
  for (const int64_t stride : {INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - 1}) {
    EXPECT_FALSE(Floats({2}, {stride}).CheckInside(1 << 20).ok()) << stride;
    EXPECT_FALSE(Floats({3}, {stride}).CheckInside(1 << 20).ok()) << stride;
    EXPECT_FALSE(Floats({2, 2}, {stride, stride}).CheckInside(1 << 20).ok()) << stride;
  }
}

TEST(ArraySpec, PackedElementsMustBeCompact) {
  EXPECT_FALSE((ArraySpec{{17, 4, 1}, "", {4}, {2}, 0}.CheckInside(64).ok()));
  EXPECT_TRUE((ArraySpec{{17, 4, 1}, "", {4}, {1}, 0}.CheckInside(2).ok()));
}

TEST(DataType, NamesGoBothWays) {
  int named = 0;
  for (int code = 0; code < 32; ++code) {
    for (const int bits : {4, 6, 8, 16, 32, 64, 128}) {
      const DataType type{static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
      const std::string name = NameOf(type);
      if (name.empty()) continue;
      ++named;
      EXPECT_EQ(TypeNamed(name), type) << name;
    }
  }
  EXPECT_EQ(named, 27);
  EXPECT_EQ(NameOf({2, 32, 2}), "");
  EXPECT_EQ(NameOf({3, 64, 1}), "");
  EXPECT_EQ(TypeNamed("datetime64"), (DataType{0, 0, 1}));
}

}  // namespace
}  // namespace arraybridge
