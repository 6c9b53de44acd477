// SPDX-License-Identifier: Apache-2.0
// Each test disables one safeguard of bytes on a GPU by a failpoint (proto/boundary/failpoint.h). The test of that
// safeguard must then fail. It must also pass with the safeguard in place, or its failure would prove nothing.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>

#include "tests/integration/build_tree.h"

namespace arraybridge {
namespace {

using testing::HasSubstr;

struct Safeguard {
  const char* failpoint;  // the code at this failpoint skips the safeguard
  const char* program;
  const char* test;
};

// Used in GoogleTest's messages.
void PrintTo(const Safeguard& safeguard, std::ostream* out) { *out << safeguard.failpoint; }

constexpr Safeguard kSafeguards[] = {
    // A reader's stream waits for the producer's event.
    {"event_wait", CUDA_FENCE_TEST, "FenceTest.NeitherSideWaitsAndTheReaderSeesTheBytes"},
    {"event_wait", CUDA_FENCE_TEST, "FenceTest.WhoCopiesToTheHostNeedsNoOrderOfItsOwn"},
    // Without an event, Publish waits for the producer's stream.
    {"stream_sync", CUDA_FENCE_TEST, "NoFenceTest.ADaemonMayBeToldToOfferNone"},
    // An event is recorded again only when no client leases its share.
    {"event_reuse", CUDA_FENCE_TEST, "FenceTest.AnEventIsUsedAgainWhenNobodyLeasesItsShareAnyMore"},
    // A share is not found by an outdated generation.
    {"share_generation", BROKER_TEST, "AcquireTest.FindsByIdAndByGeneration"},
    {"arena_generation", BROKER_TEST, "PublishTest.RefusesWhatIsNotTheCallers"},
    {"arena_generation", BROKER_TEST, "AllocateTest.ExportIsForTheMakerAndForThoseWhoLease"},
    // Memory that a client may have mapped is not freed. Freeing a block that is open elsewhere ends the daemon.
    {"quarantine", CUDA_PROCESSES_TEST, "HandleKinds/CudaKeptArenasTest.WhatAReaderKeepsMappedIsNotFreed/Ipc"},
};

struct Ended {
  int status = 0;
  std::string said;
};

Ended RunAlone(const Safeguard& safeguard, const std::string& environment) {
  const std::string command =
      environment + " '" + Built(safeguard.program) + "' --gtest_filter='" + safeguard.test + "' 2>&1";
  Ended ended;
  FILE* const output = ::popen(command.c_str(), "re");
  if (output == nullptr) return {-1, "no process"};
  std::array<char, 4096> piece{};
  while (std::fgets(piece.data(), piece.size(), output) != nullptr) ended.said += piece.data();
  ended.status = ::pclose(output);
  return ended;
}

class CudaSafeguardsTest : public testing::TestWithParam<Safeguard> {};

TEST_P(CudaSafeguardsTest, ATestFailsWithoutIt) {
  const Safeguard& safeguard = GetParam();
  if (std::getenv("ARRAYBRIDGE_CUDA_DRIVER") != nullptr) GTEST_SKIP() << "a card decides by itself when work happens";
  const Ended with = RunAlone(safeguard, "env -u ARRAYBRIDGE_FAILPOINT");
  EXPECT_EQ(with.status, 0) << with.said;
  EXPECT_THAT(with.said, HasSubstr("[  PASSED  ] 1 test."));
  const Ended without = RunAlone(safeguard, std::string("ARRAYBRIDGE_FAILPOINT=") + safeguard.failpoint + ":error");
  EXPECT_NE(without.status, 0);
  EXPECT_THAT(without.said, HasSubstr(": Failure")) << "an assertion says so, however it ended";
}

INSTANTIATE_TEST_SUITE_P(EachOne, CudaSafeguardsTest, testing::ValuesIn(kSafeguards), [](const auto& param) {
  return std::string(param.param.failpoint) + "_" + std::to_string(param.index);
});

}  // namespace
}  // namespace arraybridge
