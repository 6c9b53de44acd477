// SPDX-License-Identifier: Apache-2.0
// Bytes that their publisher never finishes, through a real arraybridged, between exec'd processes on the simulated
// driver. The reader's error names the publisher.
#include <gmock/gmock.h>

#include <string>

#include "proto/boundary/result.h"
#include "tests/integration/processes.h"

namespace arraybridge {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string& Library() {
  static const std::string library = DriverUnderTest(SIMULATED_CUDA_LIBRARY);
  return library;
}

class UnfinishedTest : public DaemonTest {
 protected:
  UnfinishedTest() : DaemonTest({"--cuda-driver", Library()}) {}

  void SetUp() override {
    if (!IsSimulated(Library())) GTEST_SKIP() << "a card decides by itself when work happens";
  }
  std::unique_ptr<Process> Client(const std::string& machine) const {
    ::setenv("SIMULATED_CUDA", machine.c_str(), 1);
    return std::make_unique<Process>(std::vector<std::string>{Built(CUDA_CLIENT_PROGRAM), directory_, Library()});
  }
  static std::string Do(const std::unique_ptr<Process>& client, const std::string& command) {
    client->Say(command);
    return client->Line();
  }
};

// The reader's calls end before the broker's own limit.
TEST_F(UnfinishedTest, WhoWaitsInVainForBytesIsToldWhoMakesThem) {
  const auto writer = Client("held");  // its events are never signalled
  const auto reader = Client("fail=cuIpcOpenEventHandle:*:205");
  ASSERT_EQ(Do(reader, "hasten"), "ok");
  ASSERT_EQ(Do(writer, "put_later frame 81"), "later");
  std::string refused = Do(reader, "get frame");
  // On a machine that stalls the reader may give up before the broker answers.
  for (int i = 0; i < 5 && refused.find("share 'frame'") == std::string::npos; ++i) refused = Do(reader, "get frame");
  EXPECT_THAT(refused, StartsWith("DEADLINE_EXCEEDED"));
  EXPECT_THAT(refused, HasSubstr("share 'frame'"));
  EXPECT_THAT(refused, HasSubstr(Concat("process ", writer->id(), ", user ", ::geteuid())));
  EXPECT_THAT(refused, HasSubstr("event on GPU-"));
  EXPECT_EQ(Do(writer, "leases"), "0");
  EXPECT_EQ(Do(writer, "pending"), "1") << "it waited for nothing that it could not have";
  writer->Kill();  // in order it would end after its timeout
}

}  // namespace
}  // namespace arraybridge
