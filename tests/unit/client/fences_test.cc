// SPDX-License-Identifier: Apache-2.0
// Shares that a client published before their bytes were written.
#include "client/arenas/fences.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>

namespace arraybridge {
namespace {

using std::chrono::steady_clock;

// Records the calls of one event.
struct Fate {
  std::atomic<bool> passed{false};
  std::atomic<bool> failed{false};
  std::atomic<bool> unknown{false};
  bool retired = false;
  bool destroyed = false;
};

class FakeEvent final : public RecordedEvent {
 public:
  explicit FakeEvent(Fate& fate) : fate_(fate) {}
  ~FakeEvent() override { fate_.destroyed = true; }
  const std::string& handle() const override { return handle_; }
  Result<bool> Passed() const override {
    if (fate_.failed) return Status(Code::kAborted, "the device failed");
    if (fate_.unknown) return Status(Code::kInternal, "the driver does not say");
    return fate_.passed.load();
  }
  void Retire() override { fate_.retired = true; }

 private:
  Fate& fate_;
  const std::string handle_ = "event";
};

class FencesTest : public testing::Test {
 protected:
  // Adds the share `id`. The returned pointer tells whether the source of its copy is still alive.
  std::weak_ptr<const void> Add(uint64_t id, Fate& fate) {
    auto source = std::make_shared<int>(0);
    std::weak_ptr<const void> watched = source;
    fences_->Add(id, std::make_unique<FakeEvent>(fate), {std::move(source)});
    return watched;
  }
  codec::Release Told(steady_clock::time_point now) {
    codec::Release release;
    fences_->Emit(release, now);
    return release;
  }

  std::deque<Fate> fates_;  // outlive the events, which end with the fences
  std::unique_ptr<Fences> fences_ = std::make_unique<Fences>();
  const steady_clock::time_point now_ = steady_clock::now();
};

TEST_F(FencesTest, SourcesLiveUntilTheWorkHasEndedAndTheEventUntilNobodyWaits) {
  Fate& fate = fates_.emplace_back();
  const auto source = Add(7, fate);
  EXPECT_TRUE(Told(now_).empty());
  EXPECT_FALSE(source.expired());
  EXPECT_TRUE(fences_->next_look().has_value());
  fate.passed = true;
  const codec::Release told = Told(now_);
  EXPECT_EQ(told.done, std::vector<uint64_t>{7});
  EXPECT_TRUE(source.expired());
  EXPECT_FALSE(fate.destroyed);
  EXPECT_TRUE(Told(now_).empty()) << "reported, and not answered yet";
  fences_->Answered(told, std::vector<uint64_t>{7}, now_);
  EXPECT_FALSE(fate.destroyed) << "another process may still wait for it";
  EXPECT_TRUE(Told(now_).empty());
  const codec::Release again = Told(now_ + std::chrono::seconds(1));
  EXPECT_EQ(again.done, std::vector<uint64_t>{7});
  fences_->Answered(again, {}, now_);
  EXPECT_TRUE(fate.destroyed);
  EXPECT_FALSE(fate.retired);
  EXPECT_FALSE(fences_->next_look().has_value());
}

TEST_F(FencesTest, WorkThatFailedIsSaidToBeLost) {
  Fate& fate = fates_.emplace_back();
  Add(8, fate);
  fate.failed = true;
  const codec::Release told = Told(now_);
  EXPECT_EQ(told.lost, std::vector<uint64_t>{8});
  EXPECT_TRUE(told.done.empty());
  fences_->Answered(told, {}, now_);
  EXPECT_TRUE(fate.retired) << "its state is meaningless";
  EXPECT_TRUE(fate.destroyed);
}

// A failed query of the driver says nothing about the work, which may still read its source.
TEST_F(FencesTest, WorkThatNobodyCanTellOfKeepsItsSourcesAndIsAskedForAgain) {
  Fate& fate = fates_.emplace_back();
  const auto source = Add(8, fate);
  const auto often = fences_->next_look();
  fate.unknown = true;
  EXPECT_TRUE(Told(now_).empty());
  EXPECT_FALSE(source.expired());
  EXPECT_GT(fences_->next_look(), often) << "it is not asked all the time";
  fences_->WaitUntil(now_);
  fate.unknown = false;
  EXPECT_TRUE(Told(now_).empty());
  EXPECT_EQ(fences_->next_look(), often);
  fate.passed = true;
  EXPECT_EQ(Told(now_).done, std::vector<uint64_t>{8});
  EXPECT_TRUE(source.expired());
}

TEST_F(FencesTest, WorkThatNobodyCanTellOfWhenTheSessionEndsKeepsItsSourcesToo) {
  Fate& fate = fates_.emplace_back();
  const auto source = Add(8, fate);
  fate.unknown = true;
  EXPECT_TRUE(Told(now_).empty());
  fences_.reset();
  EXPECT_FALSE(source.expired());
  EXPECT_TRUE(fate.retired);
}

TEST_F(FencesTest, AnAnswerAboutOthersChangesNothing) {
  Fate& queued = fates_.emplace_back();
  Fate& done = fates_.emplace_back();
  Add(1, queued);
  Add(2, done);
  done.passed = true;
  const codec::Release told = Told(now_);
  fences_->Answered({{.done = {1, 3}}}, {}, now_);
  EXPECT_FALSE(queued.destroyed) << "its work is still queued, whatever the broker answered";
  EXPECT_FALSE(done.destroyed);
  fences_->Answered(told, {}, now_);
  EXPECT_TRUE(done.destroyed);
  queued.passed = true;
}

TEST_F(FencesTest, WaitingEndsWithTheWorkOrAtTheDeadline) {
  Fate& fate = fates_.emplace_back();
  Add(9, fate);
  fences_->WaitUntil(now_);
  EXPECT_TRUE(Told(now_).empty());
  fate.passed = true;
  fences_->WaitUntil(steady_clock::time_point::max());
  EXPECT_EQ(Told(now_).done, std::vector<uint64_t>{9});
}

TEST_F(FencesTest, WhatIsQueuedWhenTheSessionEndsKeepsItsSourcesAndItsEvent) {
  Fate& queued = fates_.emplace_back();
  Fate& done = fates_.emplace_back();
  const auto source = Add(1, queued);
  Add(2, done);
  done.passed = true;
  Told(now_);
  fences_.reset();
  EXPECT_FALSE(source.expired()) << "the device may still read it";
  EXPECT_TRUE(queued.retired);
  EXPECT_TRUE(done.retired) << "it is unknown whether a process waits for it";
}

}  // namespace
}  // namespace arraybridge
