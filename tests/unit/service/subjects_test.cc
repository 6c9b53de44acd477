// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/subjects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <span>

#include "daemon/broker/snapshot.h"

namespace arraybridge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SubjectsTest : public ::testing::Test {
 protected:
  Limits limits_;
  Subjects subjects_{limits_};
};

TEST_F(SubjectsTest, TheCommonNameComesFirstThenTheOthersInTheirOrder) {
  EXPECT_THAT(*subjects_.NamesOf({{"worker"}, {"spiffe://lab/w"}, {"b.test", "a.test", "worker"}}),
              ElementsAre("worker", "a.test", "b.test", "spiffe://lab/w"));
  EXPECT_THAT(*subjects_.NamesOf({{}, {"spiffe://lab/w"}, {"a.test"}}), ElementsAre("spiffe://lab/w", "a.test"));
  EXPECT_THAT(*subjects_.NamesOf({{}, {}, {"a.test", "a.test"}}), ElementsAre("a.test"));
}

TEST_F(SubjectsTest, WhatIsNoTextIsNoName) {
  using namespace std::string_literals;
  EXPECT_THAT(*subjects_.NamesOf({{"a\nb"}, {"\xff"}, {"", "good\0bad"s, "good"}}), ElementsAre("good"));
  EXPECT_EQ(subjects_.NamesOf({{""}, {}, {}}).status().code(), Code::kUnauthenticated);
}

TEST_F(SubjectsTest, NamesHaveSoManyBytesTogether) {
  limits_.subject_bytes_max = 6;
  EXPECT_TRUE(subjects_.NamesOf({{"abc"}, {}, {"def"}}).ok());
  EXPECT_THAT(subjects_.NamesOf({{"abc"}, {}, {"def", "g"}}).status().message(), HasSubstr("limits.subject_bytes_max"));
}

TEST_F(SubjectsTest, EachKeepsItsNumberAndThereAreSoMany) {
  limits_.subjects = 2;
  const auto first = subjects_.NumberOf({"a"});
  const auto second = subjects_.NumberOf({"a", "b"});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*first, *second);
  EXPECT_TRUE(IsSubject(*first) && IsSubject(*second));
  EXPECT_NE(*second, kSharedByUsers);
  EXPECT_THAT(subjects_.NumberOf({"c"}).status().message(), HasSubstr("limit subjects (2)"));
  EXPECT_EQ(*subjects_.NumberOf({"a"}), *first);
}

TEST_F(SubjectsTest, AnUnusedOneMakesRoom) {
  limits_.subjects = 3;
  std::set<uint32_t> used;
  Subjects subjects(limits_, {}, {}, [&](std::span<const uint32_t> numbers) -> std::optional<uint32_t> {
    const auto unused = std::ranges::find_if(numbers, [&](uint32_t number) { return !used.contains(number); });
    return unused == numbers.end() ? std::nullopt : std::optional(*unused);
  });
  const uint32_t a = *subjects.NumberOf({"a"}), b = *subjects.NumberOf({"b"}), c = *subjects.NumberOf({"c"});
  used = {b};
  EXPECT_EQ(*subjects.NumberOf({"a"}), a) << "its last call is later than that of c";
  const uint32_t d = *subjects.NumberOf({"d"});
  EXPECT_EQ(d, kFirstSubject + 3);
  EXPECT_EQ(*subjects.NumberOf({"b"}), b);
  EXPECT_EQ(*subjects.NumberOf({"a"}), a);
  EXPECT_NE(*subjects.NumberOf({"c"}), c) << "it was forgotten, and its number belongs to no subject any more";
  used = {a, b, *subjects.NumberOf({"c"})};
  EXPECT_THAT(subjects.NumberOf({"e"}).status().message(), HasSubstr("limit subjects (3) is reached"));
}

TEST_F(SubjectsTest, ThoseOfAnEarlierDaemonKeepTheirNumbersAndNewOnesAreKept) {
  std::vector<uint32_t> kept;
  Status answer = Ok();
  Subjects subjects(limits_, {{kFirstSubject, {"a"}}, {kFirstSubject + 2, {"b"}}},
                    [&](uint32_t number, const std::vector<std::string>&) {
                      kept.push_back(number);
                      return answer;
                    });
  EXPECT_EQ(*subjects.NumberOf({"b"}), kFirstSubject + 2);
  EXPECT_EQ(*subjects.NumberOf({"a"}), kFirstSubject);
  EXPECT_EQ(*subjects.NumberOf({"c"}), kFirstSubject + 3) << "not that of a lost record";
  answer = ResourceExhausted("no memory");
  EXPECT_FALSE(subjects.NumberOf({"d"}).ok());
  EXPECT_EQ(*subjects.NumberOf({"c"}), kFirstSubject + 3);
  EXPECT_THAT(kept, ElementsAre(kFirstSubject + 3, kFirstSubject + 4));
}

}  // namespace
}  // namespace arraybridge
