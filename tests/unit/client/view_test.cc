// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/view.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

// The tests also cover an allocation that fails, so ASan must not abort.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace arraybridge {
namespace {

template <class T>
Result<View> Of(std::vector<T>& data, DataType type, std::vector<int64_t> shape, std::vector<int64_t> strides,
                int64_t first = 0) {
  return Describe(data.data() + first, type, std::move(shape), std::move(strides), {}, false, nullptr);
}

// The expected result of CopyCompact: every index in row-major order, by the definition of strides.
template <class T>
std::vector<T> Expected(const View& view) {
  std::vector<T> out;
  std::vector<int64_t> index(view.shape.size());
  for (uint64_t i = 0; i < view.elements(); ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * view.strides[d];
    out.push_back(static_cast<const T*>(view.data)[at]);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < view.shape[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

template <class T>
void ExpectCopied(const Result<View>& view) {
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  std::vector<T> copied(view->elements());
  CopyCompact(*view, copied.data());
  EXPECT_EQ(copied, Expected<T>(*view));
}

template <class T>
class CopyCompactOf : public testing::Test {};
using Items = testing::Types<uint8_t, uint16_t, uint32_t, uint64_t>;
TYPED_TEST_SUITE(CopyCompactOf, Items);

TYPED_TEST(CopyCompactOf, AnyStrides) {
  std::vector<TypeParam> data(120);
  std::iota(data.begin(), data.end(), TypeParam{1});
  const DataType type{1, sizeof(TypeParam) * 8, 1};
  ExpectCopied<TypeParam>(Of(data, type, {2, 3, 20}, {}));           // compact
  ExpectCopied<TypeParam>(Of(data, type, {20, 6}, {1, 20}));         // Fortran order
  ExpectCopied<TypeParam>(Of(data, type, {5, 4}, {12, 1}));          // contiguous rows
  ExpectCopied<TypeParam>(Of(data, type, {2, 3, 4}, {60, 20, 5}));   // stepped, outer ones merge
  ExpectCopied<TypeParam>(Of(data, type, {6, 20}, {-20, -1}, 119));  // reversed
  ExpectCopied<TypeParam>(Of(data, type, {6, 20}, {20, -1}, 19));    // rows reversed
  ExpectCopied<TypeParam>(Of(data, type, {7, 3}, {0, 1}));           // broadcast rows
  ExpectCopied<TypeParam>(Of(data, type, {3, 7}, {1, 0}));           // broadcast columns
  ExpectCopied<TypeParam>(Of(data, type, {3}, {0}));                 // all the same
  ExpectCopied<TypeParam>(Of(data, type, {2, 1, 3, 1, 2}, {60, 9, 1, 9, 10}));
  ExpectCopied<TypeParam>(Of(data, type, {}, {}));
}

TEST(CopyCompact, SixteenByteItems) {
  std::vector<std::array<uint64_t, 2>> data(12);
  for (size_t i = 0; i < data.size(); ++i) data[i] = {i, ~i};
  ExpectCopied<std::array<uint64_t, 2>>(Of(data, {5, 128, 1}, {3, 4}, {1, 3}));
}

TEST(CopyCompact, LargerThanTheCaches) {
  constexpr size_t kBytes = (size_t{33} << 20) + 5;
  std::vector<uint8_t> data(kBytes + 1), copied(kBytes + 10);
  std::iota(data.begin(), data.end(), uint8_t{0});
  for (const size_t offset : {0, 1, 7}) {  // of a destination that is aligned, and of others
    std::fill(copied.begin(), copied.end(), uint8_t{0});
    const auto view = Describe(data.data() + 1, {1, 8, 1}, {static_cast<int64_t>(kBytes)}, {}, {}, false, nullptr);
    ASSERT_TRUE(view.ok());
    CopyCompact(*view, copied.data() + offset);
    EXPECT_TRUE(std::equal(data.begin() + 1, data.end(), copied.begin() + static_cast<ptrdiff_t>(offset)));
    EXPECT_EQ(std::count(copied.begin(), copied.begin() + static_cast<ptrdiff_t>(offset), 0), offset);
    EXPECT_EQ(copied[offset + kBytes], 0);
  }
}

TEST(CopyCompact, UnalignedSource) {
  std::vector<uint8_t> bytes(64);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  const auto view = Describe(bytes.data() + 1, {1, 32, 1}, {4}, {2}, {}, false, nullptr);
  ASSERT_TRUE(view.ok());
  uint32_t out[4];
  CopyCompact(*view, out);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(std::memcmp(&out[i], bytes.data() + 1 + i * 8, 4), 0);
}

TEST(CopyCompact, EmptyAndPacked) {
  std::vector<uint8_t> data{0x21, 0x43};
  auto view = Of(data, {1, 8, 1}, {0, 3}, {});
  CopyCompact(*view, nullptr);  // nothing to write
  view = Of(data, {17, 4, 1}, {4}, {});
  uint8_t out[2] = {};
  CopyCompact(*view, out);
  EXPECT_EQ(out[0], 0x21);
  EXPECT_EQ(out[1], 0x43);
}

TEST(CopyToHeap, IsPrivateWritableCompactAligned) {
  std::vector<float> data{1, 2, 3, 4, 5, 6};
  auto view = Describe(data.data(), {2, 32, 1}, {3, 2}, {1, 3}, {}, true, nullptr);
  view->legacy_may_alias_read_only = true;
  const auto copy = CopyToHeap(*view);
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(copy->data) % 256, 0u);
  EXPECT_FALSE(copy->read_only);
  EXPECT_FALSE(copy->legacy_may_alias_read_only);
  EXPECT_TRUE(copy->compact());
  EXPECT_EQ(copy->dtype, "float32");
  EXPECT_EQ(Expected<float>(*copy), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  static_cast<float*>(copy->data)[0] = 9;
  EXPECT_EQ(data[0], 1);
}

TEST(CopyToHeap, RefusesWhatCannotBeHadOrReached) {
  float one = 1;
  const auto huge = Describe(&one, {2, 32, 1}, {int64_t{1} << 55}, {0}, {}, true, nullptr);
  ASSERT_TRUE(huge.ok());
  EXPECT_EQ(CopyToHeap(*huge).status().code(), Code::kResourceExhausted);
  const auto nowhere = Describe(&one, {2, 32, 1}, {1}, {}, {kDeviceCuda, 9999, {}}, true, nullptr);
  EXPECT_FALSE(CopyToHeap(*nowhere).ok());  // no driver, or no such GPU
}

TEST(CopyToHeap, OfNothing) {
  const auto view = Describe(nullptr, {2, 32, 1}, {0}, {}, {}, false, nullptr);
  const auto copy = CopyToHeap(*view);
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->data, nullptr);
}

TEST(LiesIn, EveryElement) {
  std::vector<uint32_t> data(24);
  const View whole = *Of(data, {1, 32, 1}, {4, 6}, {});
  EXPECT_TRUE(LiesIn(whole, whole));
  EXPECT_TRUE(LiesIn(*Of(data, {1, 32, 1}, {2, 3}, {6, 2}, 1), whole));
  EXPECT_TRUE(LiesIn(*Of(data, {1, 32, 1}, {24}, {-1}, 23), whole));
  EXPECT_TRUE(LiesIn(*Of(data, {1, 8, 1}, {96}, {}), whole)) << "of another type";
  const View part = *Of(data, {1, 32, 1}, {2, 6}, {}, 6);
  EXPECT_FALSE(LiesIn(whole, part));
  EXPECT_FALSE(LiesIn(*Of(data, {1, 32, 1}, {7}, {}, 12), part)) << "beyond the end";
  EXPECT_FALSE(LiesIn(*Of(data, {1, 32, 1}, {2}, {-1}, 6), part)) << "before the begin";
  EXPECT_FALSE(LiesIn(part, *Of(data, {1, 32, 1}, {4, 3}, {6, 2}))) << "gaps are somebody else's";
  EXPECT_FALSE(LiesIn(*Of(data, {1, 32, 1}, {0}, {}), whole));
}

}  // namespace
}  // namespace arraybridge
