// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/output/table.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

namespace arraybridge::ctl {
namespace {

std::string Printed(const Table& table, bool with_header) {
  std::ostringstream out;
  table.Print(out, with_header);
  return out.str();
}

TEST(Table, ColumnsAreAsWideAsTheirWidestCell) {
  Table table({"NAME", "SIZE"});
  table.Add({"a", "1 B"});
  table.Add({"a longer name", "12 KiB"});
  EXPECT_EQ(Printed(table, true),
            "NAME           SIZE\n"
            "a              1 B\n"
            "a longer name  12 KiB\n");
}

TEST(Table, WithoutItsHeaderItsWidthDoesNotCount) {
  Table table({"A LONG HEADER", "B"});
  table.Add({"x", "y"});
  EXPECT_EQ(Printed(table, false), "x  y\n");
}

TEST(Table, CountsCharactersNotBytes) {
  Table table({"N", "B"});
  table.Add({"größe", "1"});
  table.Add({"large", "2"});
  EXPECT_EQ(Printed(table, false), "größe  1\nlarge  2\n");
}

TEST(Table, ANameCannotSpeakToTheTerminal) {
  Table table({"NAME"});
  table.Add({"\x1b[2Jgone\n\x7f\xe2\x80\xae"});
  EXPECT_EQ(Printed(table, false), "\\x1b[2Jgone\\x0a\\x7f\\u202e\n");
}

TEST(Table, AnEmptyCellIsADash) {
  Table table({"A", "B"});
  table.Add({"", "b"});
  EXPECT_EQ(Printed(table, false), "-  b\n");
}

TEST(Table, IsAListOfObjectsForPrograms) {
  const auto printed = [](Output output) {
    Table table({"NAME", "EXPIRES IN"}, {.output = output});
    table.Add({"a\n\"", table.Size(2048)});
    table.Add({"b", ""});
    return Printed(table, false);
  };
  EXPECT_EQ(printed(Output::kJsonl), R"({"name":"a\n\"","expires-in":"2048"})"
                                     "\n"
                                     R"({"name":"b","expires-in":""})"
                                     "\n");
  EXPECT_EQ(printed(Output::kJson), R"([
 {
  "name": "a\n\"",
  "expires-in": "2048"
 },
 {
  "name": "b",
  "expires-in": ""
 }
]
)");
}

TEST(HumanSize, ReadsLikeASize) {
  EXPECT_EQ(HumanSize(0), "0 B");
  EXPECT_EQ(HumanSize(1023), "1023 B");
  EXPECT_EQ(HumanSize(1024), "1 KiB");
  EXPECT_EQ(HumanSize(1536), "1.5 KiB");
  EXPECT_EQ(HumanSize(64ull << 20), "64 MiB");
  EXPECT_EQ(HumanSize(std::numeric_limits<uint64_t>::max()), "16 EiB");
}

TEST(HumanSize, KeepsToAUnitThatWasAskedFor) {
  EXPECT_EQ(HumanSize(1536, Unit::kB), "1536 B");
  EXPECT_EQ(HumanSize(512, Unit::kKiB), "0.5 KiB");
  EXPECT_EQ(HumanSize(64ull << 20, Unit::kKiB), "65536.0 KiB");
  EXPECT_EQ(HumanSize(3ull << 40, Unit::kMiB), "3145728.0 MiB");
  EXPECT_EQ(HumanSize(0, Unit::kGiB), "0.0 GiB");
}

TEST(Table, HasSizesInItsUnitAndInBytesForPrograms) {
  EXPECT_EQ(Table({"A"}, {.unit = Unit::kKiB}).Size(2048), "2.0 KiB");
  EXPECT_EQ(Table({"A"}, {.output = Output::kCsv, .unit = Unit::kKiB}).Size(2048), "2048");
}

TEST(HumanAge, NamesTheUnitThatMatters) {
  EXPECT_EQ(HumanAge(999), "999 ms");
  EXPECT_EQ(HumanAge(119'999), "119 s");
  EXPECT_EQ(HumanAge(120'000), "2 min");
  EXPECT_EQ(HumanAge(7'200'000), "2 h");
  EXPECT_EQ(HumanAge(200'000'000), "2 d");
}

}  // namespace
}  // namespace arraybridge::ctl
