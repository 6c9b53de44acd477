// SPDX-License-Identifier: Apache-2.0
// The results of requests that were given up: the latest are kept, each with the broker's answer.
#include "client/lifeline/outcomes.h"

#include <gtest/gtest.h>

#include <string>

namespace arraybridge {
namespace {

Status GivenUp(const std::string& request) {
  return DeadlineExceeded("in vain").With(std::string(Lifeline::kRequestKey), request);
}

// A PublishResponse: share 5, its name, generation 9.
Answer Published() { return {std::string("\x08\x05\x12\x05") + "frame" + "\x18\x09", {}}; }

TEST(OutcomesTest, APublishThatWasDoneIsTheShareThatWasAskedFor) {
  Outcomes outcomes;
  Share asked;
  asked.ns = "images";
  asked.metadata = "mine";
  for (const bool answer_first : {true, false}) {
    const Outcomes::Key key{7, answer_first ? 1u : 2u};
    const Status why = GivenUp(Concat("7/", key.request));
    EXPECT_EQ(Outcomes::Key::Of(why), key);
    if (answer_first) outcomes.Answered(key, Verb::kPublish, Published());
    outcomes.Expect(why, asked);
    if (!answer_first) outcomes.Answered(key, Verb::kPublish, Published());
    const auto found = outcomes.Find(key);
    ASSERT_TRUE(found && found->share);
    EXPECT_TRUE(found->status.ok());
    EXPECT_EQ(found->share->id, 5u);
    EXPECT_EQ(found->share->name, "frame");
    EXPECT_EQ(found->share->generation, 9u);
    EXPECT_EQ(found->share->metadata, "mine");
    EXPECT_EQ(found->share->ns, "images");
  }
}

TEST(OutcomesTest, WhatWasRefusedSaysWhy) {
  Outcomes outcomes;
  outcomes.Answered({1, 1}, Verb::kWithdraw, Status(Code::kNotFound, "gone"));
  outcomes.Answered({1, 2}, Verb::kWithdraw, Answer{});
  outcomes.Answered({1, 3}, Verb::kPublish, Answer{"\xff", {}});
  outcomes.Answered({1, 4}, Verb::kAcquire, Answer{});
  EXPECT_EQ(outcomes.Find({1, 1})->status.code(), Code::kNotFound);
  EXPECT_TRUE(outcomes.Find({1, 2})->status.ok());
  EXPECT_FALSE(outcomes.Find({1, 2})->share);
  EXPECT_FALSE(outcomes.Find({1, 3})->status.ok()) << "an answer that does not parse";
  EXPECT_FALSE(outcomes.Find({1, 4})) << "what it granted is given back: nothing of it was done";
  EXPECT_FALSE(outcomes.Find({2, 1})) << "another connection's";
}

TEST(OutcomesTest, TheOldestIsForgottenFirst) {
  Outcomes outcomes;
  for (uint64_t request = 0; request <= Outcomes::kRememberedMax; ++request) {
    outcomes.Answered({1, request}, Verb::kWithdraw, Answer{});
  }
  EXPECT_FALSE(outcomes.Find({1, 0}));
  EXPECT_TRUE(outcomes.Find({1, 1}));
  EXPECT_TRUE(outcomes.Find({1, Outcomes::kRememberedMax}));
}

TEST(OutcomesTest, AStatusWithoutARequestHasNone) {
  EXPECT_FALSE(Outcomes::Key::Of(DeadlineExceeded("in vain")));
  for (const char* const nonsense : {"", "x", "1", "1/", "/1", "99999999999999999999999/1"}) {
    const auto key = Outcomes::Key::Of(GivenUp(nonsense));
    ASSERT_TRUE(key) << nonsense;
    EXPECT_EQ(key->request, 0u) << "no request has this number";
  }
}

}  // namespace
}  // namespace arraybridge
