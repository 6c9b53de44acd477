#include "daemon/service/system/subjects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
