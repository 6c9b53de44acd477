// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/telemetry/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <string>

#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {
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
  const std::string dropped =
      "\"" + std::to_string(10000 - taken) + " lines were dropped: the log did not accept them\"}\n";
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

TEST_F(LogTest, WhatALineIsAboutIsInItsObject) {
  log::Warn({log::Topic::kLifelineCut, {{"session", "7"}, {"reason", "a \"b\""}}}, "cut");
  EXPECT_THAT(Read(),
              EndsWith(R"("level":"warning","event":"lifeline_cut","session":"7","reason":"a \"b\"","message":"cut"})"
                       "\n"));
  log::Warn("of nothing in particular");
  EXPECT_THAT(Read(), Not(HasSubstr("event")));
}

// A journal that only this test reads.
class JournalTest : public ::testing::Test {
 protected:
  JournalTest() : path_(::testing::TempDir() + "journal." + std::to_string(::getpid())) {
    ::unlink(path_.c_str());
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, path_.c_str(), sizeof(name.sun_path) - 1);
    socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  }
  ~JournalTest() override {
    EXPECT_TRUE(log::Start("info", "text").ok());
    ::unlink(path_.c_str());
  }
  std::string Read() {
    std::string datagram(1 << 16, ' ');
    const ssize_t size = ::recv(socket_.get(), datagram.data(), datagram.size(), 0);
    datagram.resize(size < 0 ? 0 : static_cast<size_t>(size));
    return datagram;
  }

  const std::string path_;
  UniqueFd socket_;
};

TEST_F(JournalTest, ALineIsADatagramOfFields) {
  ASSERT_TRUE(log::Start("info", "journald", path_).ok());
  log::Error({log::Topic::kDeviceLost, {{"device", "GPU-1"}}}, "{} is lost", "GPU-1");
  EXPECT_EQ(Read(),
            "MESSAGE=GPU-1 is lost\nPRIORITY=3\nSYSLOG_IDENTIFIER=arraybridged\n"
            "MESSAGE_ID=4f1c0a8e5b7d4d0f9a6c2e31b8d7f505\nARRAYBRIDGE_EVENT=device_lost\nARRAYBRIDGE_DEVICE=GPU-1\n");
  log::Debug("too little");
  EXPECT_EQ(Read(), "");
}

TEST_F(JournalTest, AValueWithALineEndIsCountedAndALongOneIsCut) {
  ASSERT_TRUE(log::Start("info", "journald", path_).ok());
  log::Info("two\nlines");
  EXPECT_EQ(Read(), "MESSAGE=two\\x0alines\nPRIORITY=6\nSYSLOG_IDENTIFIER=arraybridged\n") << "a message is one line";
  log::Error({log::Topic::kDeviceLost, {{"device", "GPU\n1"}}}, "lost");
  EXPECT_THAT(Read(), EndsWith("ARRAYBRIDGE_DEVICE=GPU\\x0a1\n"));
  log::Info("{}", std::string(1 << 20, 'x'));
  const std::string cut = Read();
  EXPECT_THAT(cut, AllOf(HasSubstr("MESSAGE=xxx"), HasSubstr("PRIORITY=6")));
  EXPECT_LT(cut.size(), size_t{10000});
}

TEST_F(JournalTest, AJournalThatDoesNotKeepUpLosesLinesAndHearsHowMany) {
  ASSERT_TRUE(log::Start("info", "journald", path_).ok());
  const uint64_t before = log::Dropped();
  uint64_t written = 0;
  for (; written < 100000; ++written) log::Info("line {}", written);  // more than a socket holds
  uint64_t taken = 0;
  while (!Read().empty()) ++taken;
  ASSERT_LT(taken, written);
  log::Info("the last");
  const std::string told = Read();
  EXPECT_THAT(told, HasSubstr("MESSAGE=" + std::to_string(written - taken) + " lines were dropped"));
  EXPECT_EQ(log::Dropped() - before, written - taken);
  EXPECT_THAT(told, HasSubstr("ARRAYBRIDGE_EVENT=lines_dropped"));
  EXPECT_THAT(Read(), HasSubstr("MESSAGE=the last"));
}

TEST_F(JournalTest, OneThatIsNotThereChangesNothing) {
  ASSERT_TRUE(log::Start("info", "journald", path_).ok());
  const Status refused = log::Start("error", "journald", path_ + ".not");
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), Not(HasSubstr(path_)));
  EXPECT_EQ(log::Start("info", "journald", std::string(200, 'x')).code(), Code::kInvalidArgument);
  EXPECT_EQ(log::Start("info", "xml", path_).code(), Code::kInvalidArgument);
  log::Info("still here");
  EXPECT_THAT(Read(), HasSubstr("still here"));
}

}  // namespace
}  // namespace arraybridge::daemon
