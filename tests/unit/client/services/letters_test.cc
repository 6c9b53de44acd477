// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/services/letter.h>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace arraybridge {
namespace {

TEST(LettersTest, EveryFieldArrives) {
  const ServiceLetter sent{"bye", "a-server",         7, UINT64_MAX, "das Bild ist zu dunkel \xE2\x98\xBE",
                           true,  {1, 2, UINT64_MAX}, 8};
  const std::string bytes = sent.Encoded();
  const auto read = ServiceLetter::Of(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->kind, sent.kind);
  EXPECT_EQ(read->peer, sent.peer);
  EXPECT_EQ(read->number, sent.number);
  EXPECT_EQ(read->due_ns, sent.due_ns);
  EXPECT_EQ(read->text, sent.text);
  EXPECT_EQ(read->retry, sent.retry);
  EXPECT_EQ(read->held, sent.held);
  EXPECT_EQ(read->room, sent.room);
}

TEST(LettersTest, OtherBytesAreNoLetters) {
  EXPECT_FALSE(ServiceLetter::Of("").has_value());
  EXPECT_FALSE(ServiceLetter::Of(R"(["ticket","a",1,0,"",false,[],0])").has_value());
  const std::string bytes = ServiceLetter{.kind = "ticket", .peer = "a-caller", .number = 1}.Encoded();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto read = ServiceLetter::Of(std::string_view(bytes).substr(0, size));
    EXPECT_TRUE(!read || read->number == 0) << size;
  }
}

TEST(LettersTest, APeerThatNoChannelCanHaveIsNone) {
  EXPECT_TRUE(ServiceLetter::Of(ServiceLetter{.kind = "ticket", .peer = std::string(64, 'a')}.Encoded()).has_value());
  for (const std::string& peer :
       {std::string(65, 'a'), std::string("a b"), std::string("a/b"), std::string("a\0b", 3)}) {
    EXPECT_FALSE(ServiceLetter::Of(ServiceLetter{.kind = "ticket", .peer = peer}.Encoded()).has_value()) << peer;
  }
}

TEST(LettersTest, AByeOfTooManyRequestsIsNone) {
  EXPECT_TRUE(
      ServiceLetter::Of(ServiceLetter{.kind = "bye", .held = std::vector<uint64_t>(4096, 1)}.Encoded()).has_value());
  EXPECT_FALSE(
      ServiceLetter::Of(ServiceLetter{.kind = "bye", .held = std::vector<uint64_t>(4097, 1)}.Encoded()).has_value());
}

}  // namespace
}  // namespace arraybridge
