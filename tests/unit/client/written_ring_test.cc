// A client's side of a publish ring, over the pages that the broker makes; and what it keeps of what failed.
#include "client/written_ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/late_errors.h"
#include "daemon/memory/catalogue.h"
#include "daemon/memory/ring.h"

namespace arraybridge {
namespace {

TEST(WrittenRingTest, WhatIsWrittenIsTaken) {
  const auto ring = *PublishRing::Create();
  const auto written = *WrittenRing::Map(*ring->ExportEntries(), *ring->ExportBell());
  ASSERT_TRUE(ring->Seal().ok());
  ring::Write(written->page().entries[0], "a share");
  EXPECT_NE(ring::Enter(written->page(), 1, written->bell()), 0u) << "nobody looks yet";
  std::string taken;
  const auto count = ring->Drain(ring::kEntries, [&](std::string_view message) {
    taken = message;
    return NotFound("no arena").Because("ARENA_NOT_FOUND");
  });
  ASSERT_TRUE(count.ok());
  EXPECT_EQ(taken, "a share");
  EXPECT_EQ(Load(written->bell().tail, std::memory_order_acquire), 1u);
  EXPECT_EQ(written->bell().outcomes[0].because(), "ARENA_NOT_FOUND");
}

TEST(WrittenRingTest, WhatIsNoRingIsRefused) {
  const auto ring = *PublishRing::Create();
  const auto entries = *ring->ExportEntries();
  const auto bell = *ring->ExportBell();
  const auto catalogue = *(*Catalogue::Create(64, {}))->Export();
  const auto code = [](const UniqueFd& one, const UniqueFd& other) {
    return WrittenRing::Map(one, other).status().code();
  };
  EXPECT_EQ(code(bell, entries), Code::kFailedPrecondition);
  EXPECT_EQ(code(catalogue, bell), Code::kFailedPrecondition);
  EXPECT_EQ(code(entries, catalogue), Code::kFailedPrecondition);
  EXPECT_EQ(code(UniqueFd(), bell), Code::kFailedPrecondition);
  const uint32_t other_version = ring::kVersion + 1;
  ASSERT_EQ(::pwrite(entries.get(), &other_version, sizeof other_version, offsetof(ring::Page, version)), 4);
  EXPECT_EQ(code(entries, bell), Code::kFailedPrecondition);
}

TEST(WrittenRingTest, AForkedChildHasNeitherPage) {
  const auto ring = *PublishRing::Create();
  const auto written = *WrittenRing::Map(*ring->ExportEntries(), *ring->ExportBell());
  const auto readable = [](const void* page) {
    int pipe[2];
    if (::pipe(pipe) != 0) return true;
    return ::write(pipe[1], page, 1) == 1;  // EFAULT: it is not mapped
  };
  ASSERT_TRUE(readable(&written->page()) && readable(&written->bell()));
  const pid_t child = ::fork();
  if (child == 0) ::_exit((readable(&written->page()) ? 1 : 0) + (readable(&written->bell()) ? 2 : 0));
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  EXPECT_EQ(WEXITSTATUS(state), 0);
}

TEST(LateErrorsTest, TheFirstIsToldOnceWithHowManyMore) {
  LateErrors errors;
  EXPECT_TRUE(errors.Take().ok());
  errors.Add("a", AlreadyExists("it is there").Because("NAME_TAKEN"));
  const Status one = errors.Take();
  EXPECT_EQ(one.code(), Code::kAlreadyExists);
  EXPECT_EQ(one.reason(), "NAME_TAKEN");
  EXPECT_EQ(one.message(), "share 'a', which nobody waited for, was not published: it is there");
  EXPECT_TRUE(errors.Take().ok());
  errors.Add("b", Unavailable("gone"));
  errors.Add("c", AlreadyExists("it is there"));
  errors.Add("d", AlreadyExists("it is there"));
  const Status three = errors.Take();
  EXPECT_EQ(three.code(), Code::kUnavailable);
  EXPECT_EQ(three.message(), "share 'b', which nobody waited for, was not published: gone (and 2 more)");
  EXPECT_TRUE(errors.Take().ok());
}

}  // namespace
}  // namespace arraybridge
