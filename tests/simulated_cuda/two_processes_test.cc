// SPDX-License-Identifier: Apache-2.0
// Two exec'd processes share device memory in both ways. With a wait for the producer's event the bytes are right;
// without it they are all old, which shows that work runs late.
#include <memory>
#include <string>
#include <utility>

#include <sys/socket.h>

#include "tests/integration/build_tree.h"
#include "tests/integration/process.h"

namespace arraybridge {
namespace {

std::string NameOf(const ::testing::TestParamInfo<const char*>& way) { return way.param; }

class TwoDriversTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string pattern = "/dev/shm/simulated_cuda_testXXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    ::setenv("SIMULATED_CUDA", ("dir=" + directory_).c_str(), 1);
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd one(ends[0]);
    const UniqueFd two(ends[1]);
    exporter_ = std::make_unique<Process>(std::vector<std::string>{Built(PEER_PROGRAM), GetParam()}, ends[0]);
    importer_ = std::make_unique<Process>(importer_command(), ends[1]);
  }
  void TearDown() override {
    importer_.reset();
    exporter_.reset();
    EXPECT_EQ(std::system(("rm -r '" + directory_ + "'").c_str()), 0);
  }
  virtual std::vector<std::string> importer_command() const { return {Built(PEER_PROGRAM), GetParam()}; }

  static std::string Do(Process& process, const std::string& command) {
    process.Say(command);
    return process.Line();
  }
  std::string Export(const std::string& command) { return Do(*exporter_, command); }
  std::string Import(const std::string& command) { return Do(*importer_, command); }
  // The exporter's copy is enqueued and recorded but has not run; the importer has both handles.
  void Share() {
    for (const char* step : {"create", "fill", "record", "send"}) ASSERT_EQ(Export(step), "0") << step;
    ASSERT_EQ(Import("receive"), "0");
  }
  bool legacy() const { return std::string(GetParam()) == "legacy"; }

  std::string directory_;
  std::unique_ptr<Process> exporter_;
  std::unique_ptr<Process> importer_;
};

TEST_P(TwoDriversTest, WithTheWaitTheBytesAreRight) {
  Share();
  for (const char* step : {"open", "open_event", "wait"}) ASSERT_EQ(Import(step), "0") << step;
  EXPECT_EQ(Import("read"), "A");
  EXPECT_EQ(Import("destroy_theirs"), "0");
  EXPECT_EQ(Import("close"), "0");
  EXPECT_EQ(importer_->Wait(), 0);
  EXPECT_EQ(Export("destroy_mine"), "0");
  if (legacy()) {
    EXPECT_EQ(Export("free"), "0");
  }
  EXPECT_EQ(exporter_->Wait(), 0);
}

TEST_P(TwoDriversTest, WithoutTheWaitEveryByteIsOld) {
  Share();
  for (const char* step : {"open", "open_event"}) ASSERT_EQ(Import(step), "0") << step;
  EXPECT_EQ(Import("read"), "all 205");
  EXPECT_EQ(Import("synchronize_event"), "0");
  EXPECT_EQ(Import("read"), "A");
}

TEST_P(TwoDriversTest, AWaitOutlivesTheEventsCopy) {
  Share();
  for (const char* step : {"open", "open_event", "wait", "destroy_theirs"}) ASSERT_EQ(Import(step), "0") << step;
  EXPECT_EQ(Export("destroy_mine"), "0");
  EXPECT_EQ(Import("read"), "A");
}

TEST_P(TwoDriversTest, AQueryIsNotReadyFirstAndThenMakesTheOwnerRunTheWork) {
  Share();
  for (const char* step : {"open", "open_event"}) ASSERT_EQ(Import(step), "0") << step;
  EXPECT_EQ(Import("query"), "600");
  EXPECT_EQ(Import("query"), "0");
  EXPECT_EQ(Import("read"), "A");
}

TEST_P(TwoDriversTest, ADeadOwnersPendingEventIsRefused) {
  Share();
  for (const char* step : {"open", "open_event"}) ASSERT_EQ(Import(step), "0") << step;
  exporter_->Kill();
  EXPECT_EQ(Import("query"), "400");
  EXPECT_EQ(Import("wait"), "0");
  EXPECT_EQ(Import("read"), "400");
  EXPECT_EQ(Import("synchronize"), "400") << "the work after the wait is never run";
  EXPECT_EQ(Import("close"), "0") << "so it uses no memory";
}

TEST_P(TwoDriversTest, AnOwnerThatExitsDropsItsQueue) {
  Share();
  for (const char* step : {"open", "open_event"}) ASSERT_EQ(Import(step), "0") << step;
  EXPECT_EQ(exporter_->Wait(), 0);
  EXPECT_EQ(Import("wait"), "0");
  EXPECT_EQ(Import("read"), "400");
}

TEST_P(TwoDriversTest, ADestroyedEventCannotBeOpened) {
  Share();
  EXPECT_EQ(Export("destroy_mine"), "0");
  EXPECT_EQ(Import("open_event"), "1");
}

TEST_P(TwoDriversTest, DestroyingAnEventThatIsOpenElsewhereIsAViolation) {
  Share();
  ASSERT_EQ(Import("open_event"), "0");
  EXPECT_EQ(Export("destroy_mine"), "");
  EXPECT_EQ(exporter_->Wait(), -SIGABRT);
}

TEST_P(TwoDriversTest, ADeadImporterHoldsNothing) {
  Share();
  for (const char* step : {"open", "open_event"}) ASSERT_EQ(Import(step), "0") << step;
  importer_->Kill();
  EXPECT_EQ(Export("synchronize"), "0");
  EXPECT_EQ(Export("destroy_mine"), "0");
  if (legacy()) {
    EXPECT_EQ(Export("free"), "0");
  }
}

TEST_P(TwoDriversTest, RecordingAnImportedEventIsAViolation) {
  Share();
  ASSERT_EQ(Import("open_event"), "0");
  EXPECT_EQ(Import("record_theirs"), "");
  EXPECT_EQ(importer_->Wait(), -SIGABRT);
}

TEST_P(TwoDriversTest, ReadingADeviceAddressOnTheHostCrashes) {
  Share();
  ASSERT_EQ(Import("open"), "0");
  EXPECT_EQ(Import("peek"), "");
  EXPECT_NE(importer_->Wait(), 0);
}

TEST_P(TwoDriversTest, ClosingWithQueuedWorkIsAViolation) {
  Share();
  for (const char* step : {"open", "write"}) ASSERT_EQ(Import(step), "0") << step;
  EXPECT_EQ(Import("close"), "");
  EXPECT_EQ(importer_->Wait(), -SIGABRT);
}

// Each process waits for the other's event on one stream, and for the work after that wait on another stream.
TEST_P(TwoDriversTest, ProcessesThatWaitForEachOtherDoNotDeadlock) {
  for (int round = 0; round < 20; ++round) {
    if (round > 0) {
      TearDown();
      SetUp();
    }
    ASSERT_EQ(Import("create"), "0");
    Share();
    for (const char* step : {"open_event", "wait", "record", "send"}) ASSERT_EQ(Import(step), "0") << step;
    for (const char* step : {"receive", "open_event", "other_wait"}) ASSERT_EQ(Export(step), "0") << step;
    exporter_->Say("synchronize_other");
    importer_->Say("synchronize");
    EXPECT_EQ(exporter_->Line(), "0");
    EXPECT_EQ(importer_->Line(), "0");
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, TwoDriversTest, ::testing::Values("legacy", "vmm"), NameOf);

using LegacyTest = TwoDriversTest;
INSTANTIATE_TEST_SUITE_P(Ways, LegacyTest, ::testing::Values("legacy"), NameOf);

TEST_P(LegacyTest, FreeingMemoryThatIsOpenElsewhereIsAViolation) {
  Share();
  ASSERT_EQ(Import("open"), "0");
  ASSERT_EQ(Export("synchronize"), "0");
  EXPECT_EQ(Export("free"), "");
  EXPECT_EQ(exporter_->Wait(), -SIGABRT);
}

TEST_P(LegacyTest, ReleasingTheContextWithAnOpenHandleIsAViolation) {
  Share();
  ASSERT_EQ(Import("open"), "0");
  EXPECT_EQ(Import("release_context"), "");
  EXPECT_EQ(importer_->Wait(), -SIGABRT);
}

TEST_P(LegacyTest, AHandleIsOpenedOnce) {
  Share();
  ASSERT_EQ(Import("open"), "0");
  EXPECT_EQ(Import("open"), "208");
}

TEST_P(LegacyTest, AHandleEndsWithItsAllocation) {
  Share();
  ASSERT_EQ(Export("synchronize"), "0");
  ASSERT_EQ(Export("free"), "0");
  EXPECT_EQ(Import("open"), "400");
}

TEST_P(LegacyTest, ASmallAllocationsHandleExposesItsNeighbours) {
  ASSERT_EQ(Export("create_small"), "0");
  ASSERT_EQ(Export("send"), "0");
  ASSERT_EQ(Import("receive"), "0");
  ASSERT_EQ(Import("open"), "0");
  EXPECT_EQ(Import("neighbour"), "7");
  EXPECT_EQ(Import("close"), "0");
  ASSERT_EQ(Export("free"), "0");
  EXPECT_EQ(Import("open"), "400") << "the block is alive, but the allocation is not";
}

TEST_P(LegacyTest, AHandleEndsWithItsProcess) {
  Share();
  exporter_->Kill();
  EXPECT_EQ(Import("open"), "201");
}

using DescriptorTest = TwoDriversTest;
INSTANTIATE_TEST_SUITE_P(Ways, DescriptorTest, ::testing::Values("vmm"), NameOf);

TEST_P(DescriptorTest, MemoryOutlivesTheProcessThatMadeIt) {
  Share();
  ASSERT_EQ(Export("synchronize"), "0");
  exporter_->Kill();
  ASSERT_EQ(Import("open"), "0");
  EXPECT_EQ(Import("read"), "A");
}

TEST_P(DescriptorTest, AWriteThroughAReadOnlyMappingPoisonsOnlyTheImporter) {
  Share();
  ASSERT_EQ(Export("synchronize"), "0");
  ASSERT_EQ(Import("open_read_only"), "0");
  ASSERT_EQ(Import("write"), "0");
  EXPECT_EQ(Import("synchronize"), "700");
  EXPECT_EQ(Import("synchronize"), "700");
  EXPECT_EQ(Export("read"), "A");
}

// Runs the importer in other namespaces, which unshare(1) creates.
class NamespaceTest : public TwoDriversTest {
 protected:
  void SetUp() override {
    if (std::system("unshare --pid --mount --fork true 2>/dev/null") != 0)
      GTEST_SKIP() << "unshare is not allowed here";
    TwoDriversTest::SetUp();
  }
  void TearDown() override {
    if (!IsSkipped()) TwoDriversTest::TearDown();
  }
};

class OtherPidsTest : public NamespaceTest {
 protected:
  std::vector<std::string> importer_command() const override {
    return {"/usr/bin/unshare", "--pid", "--fork", "--kill-child", "--mount-proc", Built(PEER_PROGRAM), GetParam()};
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, OtherPidsTest, ::testing::Values("legacy", "vmm"), NameOf);

TEST_P(OtherPidsTest, DescriptorsAndEventsCrossButLegacyHandlesDoNot) {
  Share();
  EXPECT_EQ(Import("open"), legacy() ? "201" : "0");
  ASSERT_EQ(Import("open_event"), "0");
  ASSERT_EQ(Import("wait"), "0");
  EXPECT_EQ(Import("synchronize"), "0");
}

class OtherShmTest : public NamespaceTest {
 protected:
  std::vector<std::string> importer_command() const override {
    const std::string script = "mount -t tmpfs none /dev/shm && mkdir '" + directory_ + "' && exec \"$0\" \"$1\"";
    return {"/usr/bin/unshare", "--mount", "/bin/sh", "-c", script, Built(PEER_PROGRAM), GetParam()};
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, OtherShmTest, ::testing::Values("legacy", "vmm"), NameOf);

TEST_P(OtherShmTest, EventsDoNotCross) {
  Share();
  EXPECT_EQ(Import("open_event"), "205");
  EXPECT_EQ(Import("open"), "0");
}

}  // namespace
}  // namespace arraybridge
