// SPDX-License-Identifier: Apache-2.0
// Arrays in GPU memory through a real arraybridged, between exec'd processes, on the simulated driver, shared by
// descriptor and by cudaIpcMemHandle. The driver ends a process that frees memory that is open elsewhere, or that
// accesses unmapped memory. On a card (build_tree.h), tests that need another machine are skipped.
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/processes.h"

namespace arraybridge {
namespace {

const std::string& Library() {
  static const std::string library = DriverUnderTest(SIMULATED_CUDA_LIBRARY);
  return library;
}
bool OnACard() {
  static const bool simulated = IsSimulated(Library());
  return !simulated;
}

// Configures every driver of the test, each in its own process. Set before the daemon starts.
struct SimulatedMachine {
  explicit SimulatedMachine(std::string without) : off(std::move(without)) { Of("devices=2"); }
  void Of(const std::string& configuration) const { ::setenv("SIMULATED_CUDA", (configuration + off).c_str(), 1); }
  const std::string off;
};

// A driver that cannot export descriptors shares by cudaIpcMemHandle.
std::string WithoutVmm(bool vmm) { return vmm ? "" : ";off=103"; }

class CudaProcessesTest : public ::testing::WithParamInterface<bool>, SimulatedMachine, public DaemonTest {
 protected:
  explicit CudaProcessesTest(const std::string& arena_idle = "100ms")
      : SimulatedMachine(WithoutVmm(GetParam())),
        DaemonTest({"--cuda-driver", Library(), "--arena-idle", arena_idle}) {}

  void SetUp() override {
    if (!GetParam() && OnACard()) GTEST_SKIP() << "a card that exports descriptors is shared by them";
  }

  // `arenas`: the number of unused arenas that may stay mapped.
  std::unique_ptr<Process> Client(const std::string& machine = "devices=2", const std::string& arenas = "256") {
    Of(machine);
    return std::make_unique<Process>(
        std::vector<std::string>{Built(CUDA_CLIENT_PROGRAM), directory_, Library(), arenas});
  }
  static std::string Do(const std::unique_ptr<Process>& client, const std::string& command) {
    client->Say(command);
    return client->Line();
  }
  // Repeats without a time limit, because the daemon polls periodically.
  static void WaitUntil(const std::unique_ptr<Process>& client, const std::string& command, const std::string& answer) {
    for (std::string got = Do(client, command); got != answer; got = Do(client, command)) ASSERT_NE(got, "");
  }
};

TEST_P(CudaProcessesTest, BytesPutInOneAreReadInAnotherUnderItsOwnNumberOfTheDevice) {
  const auto writer = Client();
  const auto reader = Client("devices=2;visible=1,0");
  EXPECT_EQ(Do(writer, "put frame 42"), "ok");
  EXPECT_EQ(Do(reader, "get frame"), "42");
  EXPECT_EQ(Do(reader, "device frame"), OnACard() ? "0" : "1");
  EXPECT_EQ(Do(writer, "get frame"), "42");
  EXPECT_EQ(Do(writer, "device frame"), "0");
}

TEST_P(CudaProcessesTest, APutComesAfterItsProducersStream) {
  const auto writer = Client();
  const auto reader = Client();
  EXPECT_EQ(Do(writer, "put_from_stream frame 43"), "ok");
  EXPECT_EQ(Do(reader, "get frame"), "43");
  if (OnACard()) return;
  // The process must be new: a reclaimer that drains a device would make all queues run.
  const auto unordered = Client();
  EXPECT_EQ(Do(unordered, "put_unordered frame 44"), "ok");
  EXPECT_NE(Do(reader, "get frame"), "44") << "work happens late here, so only the stream makes the bytes right";
}

TEST_P(CudaProcessesTest, WhatWasWrittenInPlaceIsThereWhenItIsPublished) {
  const auto writer = Client();
  const auto reader = Client();
  EXPECT_EQ(Do(writer, "publish_in_place frame 45"), "ok");
  EXPECT_EQ(Do(reader, "get frame"), "45");
}

TEST_P(CudaProcessesTest, ManyGenerationsAreToldApart) {
  const auto writer = Client();
  const auto reader = Client();
  for (int i = 1; i <= 20; ++i) {
    EXPECT_EQ(Do(writer, "put frame " + std::to_string(i)), "ok");
    EXPECT_EQ(Do(reader, "get frame"), std::to_string(i));
  }
  EXPECT_LE(std::stoi(Do(reader, "mapped")), 4) << "an arena is mapped once, and its ranges are used again";
}

TEST_P(CudaProcessesTest, AShareOutlivesItsMakerAndGoesWithItsLastReader) {
  auto writer = Client();
  const auto reader = Client();
  EXPECT_EQ(Do(writer, "put frame 46"), "ok");
  EXPECT_EQ(Do(reader, "get frame"), "46");
  writer->Kill();
  EXPECT_EQ(Do(reader, "get frame"), "46");
  EXPECT_EQ(Do(reader, "withdraw frame"), "OK");
  EXPECT_EQ(Do(reader, "drop frame"), "ok");
  WaitUntil(reader, "leases", "0");
  WaitUntil(reader, "flush", "OK");
  EXPECT_EQ(Do(reader, "mapped"), "0");
  WaitUntil(reader, "arenas", "0");
  // The daemon still serves, so it freed nothing too early.
  EXPECT_EQ(Do(reader, "put next 47"), "ok");
}

TEST_P(CudaProcessesTest, AReadersDeathFreesWhatItHad) {
  const auto writer = Client();
  auto reader = Client();
  EXPECT_EQ(Do(writer, "put frame 48"), "ok");
  EXPECT_EQ(Do(reader, "get frame"), "48");
  EXPECT_EQ(Do(writer, "withdraw frame"), "OK");
  reader->Kill();
  WaitUntil(writer, "leases", "0");
  EXPECT_EQ(Do(writer, "flush"), "OK");
  WaitUntil(writer, "arenas", "0");
}

TEST_P(CudaProcessesTest, BytesOfALiveArrayAreNotWrittenAgain) {
  const auto writer = Client();
  const auto reader = Client();
  EXPECT_EQ(Do(writer, "put frame 1"), "ok");
  EXPECT_EQ(Do(reader, "get frame"), "1");
  for (int i = 2; i <= 20; ++i) ASSERT_EQ(Do(writer, "put frame " + std::to_string(i)), "ok");
  EXPECT_EQ(Do(reader, "look frame"), "1");
}

TEST_P(CudaProcessesTest, AFullGpuSaysSoAndServesAgain) {
  if (OnACard()) GTEST_SKIP() << "a card has more memory than this test fills";
  const auto writer = Client();
  const auto reader = Client();
  ASSERT_EQ(Do(writer, "hasten"), "ok");
  // A machine that stalls can use up the time of a put.
  const auto put = [&writer](const std::string& what) {
    std::string said = Do(writer, "put " + what);
    for (int i = 0; i < 20 && said.substr(0, 17) == "DEADLINE_EXCEEDED"; ++i) said = Do(writer, "put " + what);
    return said;
  };
  int held = 0;
  std::string said = "ok";  // a machine of 256 MiB, arrays of 1 MiB
  for (; said == "ok" && held < 300; ++held) said = put("a" + std::to_string(held) + " 1");
  EXPECT_EQ(said.substr(0, 18), "RESOURCE_EXHAUSTED") << said;
  EXPECT_GT(held, 100);
  for (int i = 0; i < held - 1; ++i) ASSERT_EQ(Do(reader, "withdraw a" + std::to_string(i)), "OK");
  EXPECT_EQ(put("again 3"), "ok");
  EXPECT_EQ(Do(reader, "get again"), "3");
}

TEST_P(CudaProcessesTest, AShareOnADeviceThatIsNotVisibleIsRefusedWithThoseThatAre) {
  if (OnACard()) GTEST_SKIP() << "there may be one card";
  const auto writer = Client();
  const auto reader = Client("devices=2;visible=1");
  EXPECT_EQ(Do(writer, "put frame 49"), "ok");
  const std::string refused = Do(reader, "get frame");
  EXPECT_NE(refused.find("FAILED_PRECONDITION"), std::string::npos) << refused;
  EXPECT_NE(refused.find("visible: GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a01"), std::string::npos) << refused;
  WaitUntil(reader, "leases", "0");
}

TEST_P(CudaProcessesTest, MappedMemoryStaysWhenTheDaemonIsKilled) {
  if (!GetParam()) GTEST_SKIP() << "memory of a cudaIpcMemHandle belongs to its owner";
  const auto writer = Client();
  EXPECT_EQ(Do(writer, "put frame 50"), "ok");
  EXPECT_EQ(Do(writer, "get frame"), "50");
  daemon_->Kill();
  EXPECT_EQ(Do(writer, "drop frame"), "ok");
  EXPECT_NE(Do(writer, "put frame 51"), "ok");
  Start();
  EXPECT_EQ(Do(writer, "put frame 52"), "ok");
  EXPECT_EQ(Do(writer, "get frame"), "52");
}

// Arenas are not unmapped for their age here.
class CudaKeptArenasTest : public CudaProcessesTest {
 protected:
  CudaKeptArenasTest() : CudaProcessesTest("1h") {}
};

TEST_P(CudaKeptArenasTest, NoMoreStayMappedThanTheReaderWants) {
  const auto frugal = Client("devices=2", "2");
  const auto plain = Client();
  std::vector<std::unique_ptr<Process>> writers;  // each has an arena of its own
  for (const std::string name : {"a", "b", "c", "d"}) {
    writers.push_back(Client());
    EXPECT_EQ(Do(writers.back(), "put " + name + " 60"), "ok");
    for (const auto* const reader : {&frugal, &plain}) {
      EXPECT_EQ(Do(*reader, "get " + name), "60");
      EXPECT_EQ(Do(*reader, "drop " + name), "ok");
    }
  }
  WaitUntil(frugal, "mapped", "2");
  EXPECT_EQ(Do(plain, "mapped"), "4");
  EXPECT_EQ(Do(frugal, "get a"), "60") << "an unmapped arena is mapped again";
}

// The share has no name any more. The driver would free a descriptor's memory, and would take a handle's memory from
// the reader.
TEST_P(CudaKeptArenasTest, WhatAReaderKeepsMappedIsNotFreed) {
  auto writer = Client();
  const auto reader = Client();
  const auto other = Client();
  EXPECT_EQ(Do(writer, "put frame 61"), "ok");
  EXPECT_EQ(Do(reader, "get frame"), "61");
  EXPECT_EQ(Do(reader, "drop frame"), "ok");
  EXPECT_EQ(Do(reader, "withdraw frame"), "OK");
  writer->Kill();
  WaitUntil(reader, "dying", "1");
  EXPECT_EQ(Do(other, "put next 62"), "ok");
  EXPECT_EQ(Do(other, "withdraw next"), "OK");
  EXPECT_EQ(Do(other, "flush"), "OK");
  WaitUntil(reader, "arenas", "1");  // the same sweep would have freed both
  EXPECT_EQ(Do(reader, "mapped"), "1");
  EXPECT_EQ(Do(reader, "flush"), "OK");
  WaitUntil(reader, "arenas", "0");
}

INSTANTIATE_TEST_SUITE_P(HandleKinds, CudaKeptArenasTest, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "Vmm" : "Ipc"; });

INSTANTIATE_TEST_SUITE_P(Both, CudaProcessesTest, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "Vmm" : "Ipc"; });

}  // namespace
}  // namespace arraybridge
