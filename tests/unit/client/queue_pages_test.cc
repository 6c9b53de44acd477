// SPDX-License-Identifier: Apache-2.0
// The client's side of a session queue, with pages made by the daemon.
#include "client/lifeline/queue_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/memory/shared_pages/session_queue.h"

namespace arraybridge::daemon {
namespace {

constexpr size_t kBytes = sizeof(session_queue::Page);

TEST(QueuePagesTest, OtherFilesAreNotMapped) {
  const auto queue = *SessionQueue::Create(1);
  const auto files = *queue->Export();
  const UniqueFd& requests = files[0];
  const UniqueFd& completions = files[1];
  const auto code = [](const UniqueFd& one, const UniqueFd& other) {
    return QueuePages::Map(one, other).status().code();
  };
  EXPECT_NE(code(completions, requests), Code::kOk) << "it cannot be written";
  EXPECT_EQ(code(requests, UniqueFd()), Code::kFailedPrecondition);
  const UniqueFd plain(::memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(plain.get(), kBytes), 0);
  EXPECT_EQ(code(plain, completions), Code::kFailedPrecondition) << "it could shrink";
  ASSERT_EQ(::fcntl(plain.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(code(plain, completions), Code::kFailedPrecondition) << "layout 0";
  EXPECT_EQ(code(requests, completions), Code::kOk);
  const uint32_t newer = session_queue::kMajor + 1;
  ASSERT_EQ(::pwrite(requests.get(), &newer, sizeof newer, offsetof(session_queue::Page, preamble.major)), 4);
  EXPECT_EQ(code(requests, completions), Code::kFailedPrecondition);
}

TEST(QueuePagesTest, AForkedChildHasNeitherPage) {
  const auto queue = *SessionQueue::Create(1);
  const auto files = *queue->Export();
  const auto pages = *QueuePages::Map(files[0], files[1]);
  ASSERT_EQ(pages->taken(), 0u);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, [](int) { ::_exit(7); });
    ::_exit(static_cast<int>(pages->taken()));
  }
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  EXPECT_EQ(WEXITSTATUS(state), 7);
}

TEST(QueuePagesTest, TheDaemonReadsWhatTheClientTellsOfBornArrays) {
  const auto queue = *SessionQueue::Create(1);
  const auto files = *queue->Export();
  const auto pages = *QueuePages::Map(files[0], files[1]);
  EXPECT_EQ(queue->born(), born::Figures{});
  const born::Figures more{.arrays = 2, .bytes = {4096}, .missed_bytes = 64, .missed = {1, 0xFFFFFFF0}};
  born::Add(pages->born(), more);
  EXPECT_EQ(queue->born(), more);
  born::Add(pages->born(), more);
  EXPECT_EQ(queue->born().arrays, 4u);
  EXPECT_EQ(queue->born().bytes[0], 8192u);
  EXPECT_EQ(queue->born().missed[0], 2u);
  EXPECT_EQ(queue->born().missed[1], 0xFFFFFFFFu) << "it stays at the largest number";
}

}  // namespace
}  // namespace arraybridge::daemon
