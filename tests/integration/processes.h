// SPDX-License-Identifier: Apache-2.0
// Runs a real arraybridged in a directory of its own, and programs exec'd beside it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "proto/boundary/unique_fd.h"
#include "tests/integration/build_tree.h"
#include "tests/integration/process.h"

namespace arraybridge {

class DaemonTest : public ::testing::Test {
 protected:
  // `options`: options of the daemon, in addition to those of every test.
  explicit DaemonTest(std::vector<std::string> options = {}) : options_(std::move(options)) {
    std::string pattern = ::testing::TempDir() + "/abXXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    Start();
  }
  ~DaemonTest() override {
    daemon_->Signal(SIGTERM);  // the end of its input does not end it
    daemon_.reset();
    EXPECT_EQ(std::system(("rm -rf '" + directory_ + "'").c_str()), 0);
  }

  void Start() {
    int ready[2];
    ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
    std::vector<std::string> words{DaemonUnderTest(ARRAYBRIDGED),
                                   "--directory",
                                   directory_,
                                   "--ready-fd",
                                   "3",
                                   "--cache",
                                   "0",
                                   "--listen",
                                   "off",
                                   "--log-level",
                                   "error"};
    words.insert(words.end(), options_.begin(), options_.end());
    const bool said = std::find(options_.begin(), options_.end(), "--arena-idle") != options_.end();
    if (!said) words.insert(words.end(), {"--arena-idle", "100ms"});
    daemon_ = std::make_unique<Process>(words, ready[1]);
    ::close(ready[1]);
    char line[6] = {};
    const UniqueFd reader(ready[0]);
    ASSERT_EQ(::read(reader.get(), line, sizeof line), 6) << "the daemon did not start";
  }

  const std::vector<std::string> options_;
  std::string directory_;
  std::unique_ptr<Process> daemon_;
};

}  // namespace arraybridge
