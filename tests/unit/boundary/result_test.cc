// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/result.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <sstream>

namespace arraybridge {
namespace {

Result<std::unique_ptr<int>> Half(int number) {
  if (number % 2 != 0) return InvalidArgument(number, " is odd").Because("ODD").With("number", Concat(number));
  return std::make_unique<int>(number / 2);
}

Status CheckEven(int number) {
  AB_RETURN_IF_ERROR(Half(number).status());
  return Ok();
}

TEST(Result, CarriesAMoveOnlyValue) {
  auto half = Half(8);
  ASSERT_TRUE(half.ok());
  EXPECT_EQ(**half, 4);
  const std::unique_ptr<int> moved = *std::move(half);
  EXPECT_EQ(*moved, 4);
}

TEST(Result, CarriesTheError) {
  const auto half = Half(7);
  ASSERT_FALSE(half.ok());
  EXPECT_EQ(half.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(half.status().message(), "7 is odd");
  EXPECT_EQ(half.status().reason(), "ODD");
  EXPECT_EQ(half.status().metadata(), (Status::Metadata{{"number", "7"}}));
  EXPECT_EQ(half.status().ToString(), "INVALID_ARGUMENT: 7 is odd");
}

TEST(Result, ErrorsPassThroughTheGuard) {
  EXPECT_TRUE(CheckEven(2).ok());
  EXPECT_EQ(CheckEven(3).reason(), "ODD");
}

TEST(ResultDeathTest, ReadingAMissingValueStopsTheProcess) { EXPECT_DEATH(*Half(1), "check failed"); }

TEST(Concat, WritesWhatAStreamWrites) {
  const auto both = [](const auto&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    EXPECT_EQ(Concat(parts...), out.str());
  };
  const std::string text = "text";
  const char* const pointer = "pointer";
  EXPECT_EQ(Concat(), "");
  both("literal", text, std::string_view("view"), pointer, 'c', "");
  both(0, -7, 7u, short{-3}, uint16_t{3}, std::numeric_limits<int64_t>::min(), std::numeric_limits<uint64_t>::max());
  both(true, uint8_t{'u'}, 1.5, 1e300, Code::kOk == Code::kOk);
}

TEST(Code, NamesAreGrpcs) {
  EXPECT_EQ(CodeName(Code::kOk), "OK");
  EXPECT_EQ(CodeName(Code::kUnauthenticated), "UNAUTHENTICATED");
  EXPECT_EQ(CodeName(static_cast<Code>(99)), "UNKNOWN");
}

}  // namespace
}  // namespace arraybridge
