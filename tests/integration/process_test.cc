// SPDX-License-Identifier: Apache-2.0
// A helper process that ends badly fails its test, whether or not the test checks how it ended.
#include <gtest/gtest-spi.h>

#include "tests/integration/process.h"

namespace arraybridge {
namespace {

std::vector<std::string> Shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

void RunToItsEnd(const std::string& script) { const Process process(Shell(script)); }

void RunUntilItIsKilled(const std::string& script) {
  Process process(Shell(script));
  process.Line();  // it has reached the end of its script, or its wait
  process.Kill();
}

TEST(ProcessTest, WhoEndsWellAfterItsInputSaysNothing) { RunToItsEnd("cat >/dev/null"); }

TEST(ProcessTest, WhoAbortsFailsItsTest) {
  EXPECT_NONFATAL_FAILURE(RunToItsEnd("kill -ABRT $$"), "/bin/sh did not end well");
  EXPECT_NONFATAL_FAILURE(RunToItsEnd("cat >/dev/null; kill -ABRT $$"), "/bin/sh did not end well");
  EXPECT_NONFATAL_FAILURE(RunToItsEnd("exit 23"), "/bin/sh did not end well");
}

TEST(ProcessTest, WhoAbortsBeforeItIsKilledFailsItsTest) {
  EXPECT_NONFATAL_FAILURE(RunUntilItIsKilled("exit 0"), "had ended before it was killed");
  EXPECT_NONFATAL_FAILURE(RunUntilItIsKilled("kill -ABRT $$"), "had ended before it was killed");
  RunUntilItIsKilled("echo; cat");
}

TEST(ProcessTest, WhoIsAskedHowItEndedIsNotAskedAgain) {
  Process process(Shell("kill -ABRT $$"));
  EXPECT_EQ(process.Wait(), -SIGABRT);
}

}  // namespace
}  // namespace arraybridge
