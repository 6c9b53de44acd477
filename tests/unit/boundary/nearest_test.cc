// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/nearest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace arraybridge {
namespace {

const std::vector<std::string> kKnown = {"frame", "frames", "mask", "weights"};

TEST(NearestTest, TheFewestEditsWin) {
  EXPECT_EQ(Nearest("frmae", kKnown, 1), "frame") << "two swapped letters are one edit";
  EXPECT_EQ(Nearest("frme", kKnown, 1), "frame");
  EXPECT_EQ(Nearest("framess", kKnown, 2), "frames");
  EXPECT_EQ(Nearest("wieghst", kKnown, 2), "weights");
  EXPECT_EQ(Nearest("mask", kKnown, 1), "mask");
}

TEST(NearestTest, AWordThatIsFarFromAllHasNoNearest) {
  EXPECT_EQ(Nearest("camera", kKnown, EditsOf("camera")), "");
  EXPECT_EQ(Nearest("", kKnown, EditsOf("")), "");
  EXPECT_EQ(Nearest("frame", {}, 1), "");
  EXPECT_EQ(Nearest(std::string(1 << 20, 'x'), kKnown, 3), "");
}

TEST(NearestTest, AGuessIsAQuestion) {
  EXPECT_EQ(DidYouMean("maks", kKnown, EditsOf("maks")), "did you mean 'mask'? ");
  EXPECT_EQ(DidYouMean("camera", kKnown, EditsOf("camera")), "");
}

}  // namespace
}  // namespace arraybridge
