// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/text.h"

#include <gtest/gtest.h>

namespace arraybridge {
namespace {

TEST(PrintableTest, TerminalControlCharactersAreEscaped) {
  EXPECT_EQ(Printable("frame"), "frame");
  EXPECT_EQ(Printable("größe 日本"), "größe 日本");
  EXPECT_EQ(Printable("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(Printable("a\nb\tc\x7f"), "a\\x0ab\\x09c\\x7f");
  EXPECT_EQ(Printable("\xe2\x80\xae"
                      "evil"),
            "\\u202eevil");
  EXPECT_EQ(Printable("\xe2\x81\xa6\xe2\x80\x8b\xef\xbb\xbf"), "\\u2066\\u200b\\ufeff");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\x9b31m")
      << "a C1 character also begins an escape sequence";
  EXPECT_EQ(Printable("\u061c\u180e\U000e0041"), "\\u061c\\u180e\\U000e0041");
  EXPECT_EQ(Printable("\U0001f600"), "\U0001f600");
  EXPECT_EQ(Printable("\xff\xc3"), "\\xff\\xc3") << "not UTF-8";
  EXPECT_EQ(Printable(""), "");
}

TEST(PrintableTest, JsonKeepsItsValue) {
  EXPECT_EQ(PrintableJson("{\n \"a\": \"\\u001b \xe2\x80\xae\x7f\"\n}"), "{\n \"a\": \"\\u001b \\u202e\\u007f\"\n}");
  EXPECT_EQ(PrintableJson("\U000e0041\U000e0fff"), "\\udb40\\udc41\\udb43\\udfff");
}

}  // namespace
}  // namespace arraybridge
