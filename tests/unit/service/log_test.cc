#include "daemon/service/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <string>

#include "proto/boundary/unique_fd.h"

namespace arraybridge {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// Standard error is a pipe that only this test reads.
class LogTest : public ::testing::Test {
 protected:
  LogTest() : kept_(::dup(STDERR_FILENO)) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reader_.reset(ends[0]);
    const UniqueFd writer(ends[1]);
    ::fcntl(reader_.get(), F_SETFL, O_NONBLOCK);
    ::dup2(writer.get(), STDERR_FILENO);
    EXPECT_TRUE(log::Start("info", "json").ok());
    log::Warn("what others dropped is told");
    Read();
  }
  ~LogTest() override { ::dup2(kept_.get(), STDERR_FILENO); }

  std::string Read() {
    std::string all(1 << 20, ' ');
    size_t size = 0;
    for (ssize_t got = 0; (got = ::read(reader_.get(), all.data() + size, all.size() - size)) > 0;) {
      size += static_cast<size_t>(got);
    }
    all.resize(size);
    return all;
  }

  UniqueFd kept_;
  UniqueFd reader_;
};

TEST_F(LogTest, AReaderThatDoesNotKeepUpLosesLinesAndHearsHowMany) {
  for (int i = 0; i < 10000; ++i) log::Warn("line {}", i);  // more than the pipe holds
  const std::string first = Read();
  EXPECT_THAT(first, HasSubstr("line 0"));
  const auto taken = static_cast<size_t>(std::count(first.begin(), first.end(), '\n'));
  ASSERT_LT(taken, 10000u);
  log::Warn("the last");
  const std::string dropped = "\"" + std::to_string(10000 - taken) + " lines were dropped: nobody read the log\"}\n";
  EXPECT_THAT(Read(), AllOf(HasSubstr(dropped), HasSubstr("the last")));
  log::Warn("in peace");
  EXPECT_THAT(Read(), AllOf(HasSubstr("in peace"), Not(HasSubstr("dropped"))));
}

TEST_F(LogTest, ALineThatAPipeWouldNotTakeInOnePieceIsShortened) {
  log::Warn("{}", std::string(2 * PIPE_BUF, '"'));
  const std::string line = Read();
  EXPECT_LE(line.size(), static_cast<size_t>(PIPE_BUF));
  EXPECT_THAT(line, EndsWith("\\\"\"}\n"));
}

TEST_F(LogTest, AReaderThatWentAwayIsNoReasonToEnd) {
  reader_.reset();
  log::Warn("to nobody");
}

}  // namespace
}  // namespace arraybridge
