// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/pages/huge_page_size.h"

#include <gtest/gtest.h>

#include <bit>

namespace arraybridge {
namespace {

TEST(HugePageSize, IsWhatTheKernelSays) {
  EXPECT_EQ(HugePageBytesOf("2097152\n"), uint64_t{2} << 20);
  EXPECT_EQ(HugePageBytesOf("33554432"), uint64_t{32} << 20) << "pages of 16 KiB";
  EXPECT_EQ(HugePageBytesOf("536870912"), uint64_t{512} << 20) << "pages of 64 KiB";
}

TEST(HugePageSize, IsTheUsualOneIfTheKernelSaysNothingOrNonsense) {
  for (const char* const text : {"", "huge", "0", "4096", "3000000", "-1"}) {
    EXPECT_EQ(HugePageBytesOf(text), uint64_t{2} << 20) << text;
  }
}

TEST(HugePageSize, OfThisKernelIsAPowerOfTwo) {
  EXPECT_TRUE(std::has_single_bit(HugePageBytes()));
  EXPECT_GE(HugePageBytes(), uint64_t{2} << 20);
}

}  // namespace
}  // namespace arraybridge
