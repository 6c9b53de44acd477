// SPDX-License-Identifier: Apache-2.0
// Guarantees that hold for every kind of memory: host memory, and memory of the simulated GPU, shared by descriptor or
// by cudaIpcMemHandle. Tests that need special clients are in two_processes_test and cuda_processes_test.
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <arraybridge/arraybridge.h>
#include <arraybridge/broker.h>
#include <arraybridge/bundle.h>
#include <arraybridge/device.h>

#include "tests/integration/filled.h"
#include "tests/integration/processes.h"

namespace arraybridge {
namespace {

using std::chrono::seconds;

const std::string& Library() {
  static const std::string library = DriverUnderTest(SIMULATED_CUDA_LIBRARY);
  return library;
}

struct Kind {
  HandleKind kind;
  bool catalogue;  // true: shares are acquired without requests if possible
};

// The daemon's machine. The driver of the test's own process can do everything.
struct Machine {
  explicit Machine(HandleKind kind) {
    ::setenv("SIMULATED_CUDA", kind == HandleKind::kCudaIpc ? "devices=1;off=103" : "devices=1", 1);
  }
};

class AllKindsTest : public ::testing::WithParamInterface<Kind>, Machine, public DaemonTest {
 protected:
  AllKindsTest() : Machine(GetParam().kind), DaemonTest(Flags()) {}

  void SetUp() override {
    if (kind() == HandleKind::kMemfd) return;
#if defined(ARRAYBRIDGE_FOREIGN_DAEMON)
    GTEST_SKIP() << "the daemon of another build cannot load the simulated driver of this one";
#endif
    if (!IsSimulated(Library())) GTEST_SKIP() << "on a card run cuda_processes_test instead";
  }

  static HandleKind kind() { return GetParam().kind; }
  static Device device() { return kind() == HandleKind::kMemfd ? Device{} : Device{kDeviceCuda, 0, {}}; }
  Broker::Options options() const {
    Broker::Options options{.address = directory_, .timeout = seconds(30), .client = "test"};
    options.catalogue = GetParam().catalogue;
    if (kind() != HandleKind::kMemfd) options.cuda_driver = Library();
    return options;
  }
  static Result<Share> Put(Broker& broker, const std::string& name, size_t bytes, uint8_t fill,
                           Broker::PublishOptions options = {}) {
    const std::vector<uint8_t> content(bytes, fill);
    const View view = ViewOf(content);
    auto placed = broker.Place({&view, 1}, false, device());
    if (!placed.ok()) return placed.status();
    options.name = name;
    return broker.Publish(*placed, options);
  }

 private:
  static std::vector<std::string> Flags() {
    if (kind() == HandleKind::kMemfd) return {"--cuda-driver", "none", "--namespace-quota", "32MiB"};
    return {"--cuda-driver", Library(), "--namespace-quota", "32MiB"};
  }
};

TEST_P(AllKindsTest, OnlyHostMemoryIsSealed) {
  Broker broker(options());
  const std::vector<uint8_t> content(5000, 3);
  const View view = ViewOf(content);
  const auto placed = broker.Place({&view, 1}, true, device());
  EXPECT_EQ(placed.status().reason(), kind() == HandleKind::kMemfd ? "" : "DEVICE_NOT_SEALED");
}

TEST_P(AllKindsTest, ItLiesWhereItWasPutAndComesAsItShould) {
  Broker broker(options());
  ASSERT_TRUE(Put(broker, "frame", 5000, 3).ok());
  const auto array = broker.Acquire({.name = "frame"});
  ASSERT_TRUE(array.ok()) << array.status().ToString();
  EXPECT_EQ(array->share->kind, kind());
  EXPECT_EQ(array->views[0].device.type, device().type);
  EXPECT_TRUE(IsFilled(array->views[0], 5000, 3));
  EXPECT_FALSE(IsFilled(array->views[0], 5000, 4)) << "the check can fail";
}

TEST_P(AllKindsTest, WhoWaitsForANameIsToldWhenItComes) {
  Broker broker(options());
  const auto in_vain = broker.Acquire({.name = "never"}, {.wait = std::chrono::milliseconds(1)});
  EXPECT_EQ(in_vain.status().code(), Code::kDeadlineExceeded);
  std::thread waits([this] {
    Broker reader(options());
    const auto array = reader.Acquire({.name = "soon"}, {.wait = seconds(60)});
    ASSERT_TRUE(array.ok()) << array.status().ToString();
    EXPECT_TRUE(IsFilled(array->views[0], 70000, 5));
  });
  while (broker.GetStats()->waiting == 0) std::this_thread::yield();
  EXPECT_TRUE(Put(broker, "soon", 70000, 5).ok());
  waits.join();
}

TEST_P(AllKindsTest, TheQuotaIsNamedAndWhatIsWithdrawnMakesRoom) {
  constexpr size_t kBytes = 6 << 20;
  Broker::Options hasty = options();
  hasty.timeout = std::chrono::milliseconds(500);
  Broker broker(hasty), patient(options());
  // A machine that stalls can use up the timeout of a put.
  const auto put_until_served = [&](const std::string& name, uint8_t fill) {
    Status put = Put(broker, name, kBytes, fill, {.replace = true}).status();
    for (int i = 0; i < 20 && put.code() == Code::kDeadlineExceeded; ++i) {
      put = Put(broker, name, kBytes, fill, {.replace = true}).status();
    }
    return put;
  };
  Status refused;
  int put = 0;
  for (; refused.ok() && put < 20; ++put) refused = put_until_served(std::to_string(put), 1);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted) << refused.ToString();
  EXPECT_NE(refused.message().find("its quota of 32.0 MiB"), std::string::npos) << refused.ToString();
  EXPECT_GE(put, 4);
  ASSERT_TRUE(patient.Withdraw({.name = "0"}).ok());
  ASSERT_TRUE(patient.Withdraw({.name = "1"}).ok());
  EXPECT_TRUE(put_until_served("again", 2).ok());
  const auto array = patient.Acquire({.name = "again"});
  ASSERT_TRUE(array.ok()) << array.status().ToString();
  EXPECT_TRUE(IsFilled(array->views[0], kBytes, 2));
}

TEST_P(AllKindsTest, WhoFindsNoRoomIsServedWhenThereIsSome) {
  constexpr size_t kBytes = 20 << 20;  // of 32 MiB
  Broker owner(options());
  ASSERT_TRUE(Put(owner, "first", kBytes, 1).ok());
  std::thread waits([this] {
    Broker patient(options());
    const auto put = Put(patient, "second", kBytes, 2);
    EXPECT_TRUE(put.ok()) << put.status().ToString();
  });
  while (owner.GetStats()->waiting == 0) std::this_thread::yield();
  EXPECT_TRUE(owner.Withdraw({.name = "first"}).ok());
  waits.join();
  const auto array = owner.Acquire({.name = "second"});
  ASSERT_TRUE(array.ok()) << array.status().ToString();
  EXPECT_TRUE(IsFilled(array->views[0], kBytes, 2));
}

TEST_P(AllKindsTest, WhatWasAcquiredIsPutAgainInOneStepWhereItLies) {
  Broker broker(options());
  ASSERT_TRUE(Put(broker, "first", 5000, 3).ok());
  const auto first = broker.Acquire({.name = "first"});
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  const auto again = broker.Put(first->views, {.name = "again"});
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  Broker reader(options());
  const auto array = reader.Acquire({.name = "again"});
  ASSERT_TRUE(array.ok()) << array.status().ToString();
  EXPECT_EQ(array->share->kind, kind());
  EXPECT_EQ(array->views[0].device.type, device().type);
  EXPECT_TRUE(IsFilled(array->views[0], 5000, 3));
}

TEST_P(AllKindsTest, AChannelBringsThemInOrder) {
  Broker sender(options());
  Broker receiver(options());
  auto receives = receiver.OpenChannel("c", Channel::Role::kReceiver, 4);
  auto sends = sender.OpenChannel("c", Channel::Role::kSender);
  ASSERT_TRUE(receives.ok() && sends.ok());
  for (uint8_t i = 1; i <= 40; ++i) {
    const std::vector<uint8_t> content(5000, i);
    const View view = ViewOf(content);
    auto placed = sender.Place({&view, 1}, false, device());
    ASSERT_TRUE(placed.ok()) << placed.status().ToString();
    ASSERT_TRUE(sends->Send(*placed, {}).ok());
    const auto received = receives->Receive({.timeout = seconds(30)});
    ASSERT_TRUE(received.ok()) << received.status().ToString();
    EXPECT_EQ(received->views[0].device.type, device().type);
    ASSERT_TRUE(IsFilled(received->views[0], 5000, i));
  }
  ASSERT_TRUE(sends->Close().ok());
  EXPECT_EQ(receives->Receive({.timeout = seconds(30)}).status().reason(), "CHANNEL_ENDED");
}

TEST_P(AllKindsTest, ArraysOutliveTheDaemonAndTheNextCallReconnects) {
  if (kind() == HandleKind::kCudaIpc)
    GTEST_SKIP() << "memory opened by its handles belongs to the daemon and ends with it";
  Broker broker(options());
  ASSERT_TRUE(Put(broker, "old", 100000, 7).ok());
  auto shared = broker.Acquire({.name = "old"});
  auto mine = broker.Acquire({.name = "old"}, {.mode = MapMode::kPrivate});
  ASSERT_TRUE(shared.ok() && mine.ok());
  daemon_->Kill();
  EXPECT_TRUE(IsFilled(shared->views[0], 100000, 7));
  EXPECT_TRUE(IsFilled(mine->views[0], 100000, 7));
  EXPECT_EQ(broker.GetStats().status().code(), Code::kUnavailable);
  Start();
  const auto lost = broker.Acquire({.name = "old"});
  EXPECT_EQ(lost.status().code(), Code::kNotFound) << lost.status().ToString();
  auto share = Put(broker, "new", 1000, 8);
  ASSERT_TRUE(share.ok()) << share.status().ToString();
  EXPECT_NE(share->broker_id, shared->share->broker_id);
  EXPECT_TRUE(IsFilled(shared->views[0], 100000, 7));
  shared->views.clear();
  mine->views.clear();
  EXPECT_TRUE(broker.Flush().ok());
  EXPECT_EQ(broker.GetStats()->leases, 0u);
}

TEST_P(AllKindsTest, APlacementOfALostConnectionSaysSo) {
  Broker broker(options());
  const std::vector<uint8_t> content(1000, 1);
  const View view = ViewOf(content);
  auto placed = broker.Place({&view, 1}, false, device());
  ASSERT_TRUE(placed.ok());
  daemon_->Kill();
  Start();
  EXPECT_FALSE(broker.Publish(*placed, {.name = "x"}).ok());
  const auto again = broker.Publish(*placed, {.name = "x"});
  EXPECT_EQ(again.status().reason(), "PLACEMENT_LOST");
  if (kind() == HandleKind::kCudaIpc) return;  // the daemon owned the bytes
  EXPECT_TRUE(IsFilled(placed->views()[0], 1000, 1)) << "the bytes stay";
}

TEST_P(AllKindsTest, ReplacedRangesAreCarvedAgain) {
  Broker broker(options());
  constexpr size_t kBytes = 300000;
  for (int round = 0; round < 200; ++round) {
    const auto fill = static_cast<uint8_t>(round);
    auto share = Put(broker, "frame", kBytes, fill, {.replace = true});
    ASSERT_TRUE(share.ok()) << share.status().ToString();
    auto array = broker.Acquire({.name = "frame"});
    ASSERT_TRUE(array.ok()) << array.status().ToString();
    ASSERT_TRUE(IsFilled(array->views[0], kBytes, fill));
    array->views.clear();
    // The reclaimer's thread gives the ranges back, which may be late on a busy machine.
    if (round % 10 == 9) {
      ASSERT_TRUE(broker.Flush().ok());
    }
  }
  EXPECT_LE(broker.client_stats().arena_bytes, 16u << 20) << "200 frames of 300 kB went through";
}

TEST_P(AllKindsTest, BytesOfALiveArrayAreNotCarvedAgain) {
  Broker broker(options());
  ASSERT_TRUE(Put(broker, "held", 100000, 1).ok());
  auto held = broker.Acquire({.name = "held"});
  ASSERT_TRUE(held.ok());
  ASSERT_TRUE(broker.Withdraw({.name = "held"}).ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Put(broker, "other", 100000, 2, {.replace = true}).ok());
  EXPECT_TRUE(IsFilled(held->views[0], 100000, 1));
}

TEST_P(AllKindsTest, WhatNobodyUsesIsGivenBack) {
  Broker broker(options());
  {
    ASSERT_TRUE(Put(broker, "x", 5000, 1).ok());
    auto array = broker.Acquire({.name = "x"});
    ASSERT_TRUE(array.ok());
    EXPECT_EQ(broker.client_stats().arenas_mapped, 1u);
    EXPECT_EQ(broker.client_stats().live_leases, 1u);
    ASSERT_TRUE(broker.Withdraw({.name = "x"}).ok());
  }
  ASSERT_TRUE(broker.Flush().ok());
  ASSERT_TRUE(broker.Flush().ok());
  const ClientStats mine = broker.client_stats();
  EXPECT_EQ(mine.live_leases, 0u);
  EXPECT_EQ(mine.pending_releases, 0u);
  EXPECT_EQ(mine.arenas_mapped, 0u);
  EXPECT_EQ(mine.arenas_written, 0u);
}

TEST_P(AllKindsTest, WhatLiesInAPlacementIsPublishedInPlace) {
  Broker broker(options());
  const ArraySpec spec{.type = {1, 8, 1}, .dtype = "uint8", .shape = {1000}, .strides = {}};
  auto placed = broker.Empty({&spec, 1}, false, device());
  ASSERT_TRUE(placed.ok());
  View view = placed->views()[0];
  EXPECT_TRUE(broker.PlacementOf({&view, 1}));
  std::vector<uint8_t> elsewhere(1000);
  const View foreign = ViewOf(elsewhere);
  EXPECT_FALSE(broker.PlacementOf({&foreign, 1}));
  ASSERT_TRUE(broker.Publish(*broker.PlacementOf({&view, 1}), {.name = "in place"}).ok());
  EXPECT_FALSE(broker.PlacementOf({&view, 1})) << "published once";
}

TEST_P(AllKindsTest, ManyThreadsShareOneConnection) {
  Broker broker(options());
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round) {
        const std::string name = std::to_string(t);
        const auto fill = static_cast<uint8_t>(t * 16 + round % 16);
        auto share = Put(broker, name, 5000, fill, {.replace = true});
        ASSERT_TRUE(share.ok()) << share.status().ToString();
        auto array = broker.Acquire({.name = name});
        ASSERT_TRUE(array.ok()) << array.status().ToString();
        ASSERT_TRUE(IsFilled(array->views[0], 5000, fill));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(broker.GetStats()->sessions, 1u);
  EXPECT_EQ(broker.List()->size(), 16u);
}

TEST_P(AllKindsTest, EmptyAndScalarArraysTravelToo) {
  Broker broker(options());
  const int64_t scalar = 77;
  std::vector<View> views(2);
  views[0].type = {2, 32, 1};
  views[0].dtype = "float32";
  views[0].shape = {3, 0};
  views[0].strides = {1, 1};
  views[1].data = const_cast<int64_t*>(&scalar);
  views[1].type = {0, 64, 1};
  views[1].dtype = "int64";
  auto placed = broker.Place(views, false, device());
  ASSERT_TRUE(placed.ok()) << placed.status().ToString();
  EXPECT_EQ(placed->views()[0].data, nullptr);
  auto share = broker.Publish(*placed, {.structure = "tree", .metadata = "mine"});
  ASSERT_TRUE(share.ok()) << share.status().ToString();
  EXPECT_TRUE(share->unnamed);
  auto array = broker.Acquire({.name = {}, .id = share->id});
  ASSERT_TRUE(array.ok()) << array.status().ToString();
  EXPECT_EQ(array->views[0].data, nullptr);
  EXPECT_EQ(array->views[0].shape, (std::vector<int64_t>{3, 0}));
  const auto copy = CopyToHeap(array->views[1]);
  ASSERT_TRUE(copy.ok()) << copy.status().ToString();
  EXPECT_EQ(*static_cast<const int64_t*>(copy->data), 77);
  EXPECT_EQ(array->share->structure + array->share->metadata, "treemine");
}

TEST_P(AllKindsTest, ABundleIsReadByNameInAnotherClient) {
  Broker writer(options());
  const std::vector<uint8_t> content(5000, 7);
  const DataType byte{1, 8, 1};
  const auto plan = BundlePlan::For(std::vector<BundleArray>{{"b", byte, {5000}}, {"a", byte, {3}}}, "model", "more");
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  auto placed = writer.Empty(plan->specs(), false, device());
  ASSERT_TRUE(placed.ok()) << placed.status().ToString();
  const auto written = plan->WriteTo(*placed);
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  const View room = written->At(1)->view;
  EXPECT_FALSE(room.read_only);
  const View source = ViewOf(content);
  if (device().type == kDeviceCpu) {
    CopyCompact(source, room.data);
  } else {
    ASSERT_TRUE(CopyToGpus({&source, 1}, {&room, 1}).ok());
  }
  const Broker::PublishOptions as_bundle{.name = "m", .structure = std::string(Bundle::kStructure)};
  ASSERT_TRUE(writer.Publish(*placed, as_bundle).ok());

  Broker reader(options());
  const auto acquired = reader.Acquire({.name = "m"});
  ASSERT_TRUE(acquired.ok()) << acquired.status().ToString();
  const auto bundle = Bundle::Of(acquired->views);
  ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
  EXPECT_EQ(bundle->fingerprint() + bundle->metadata(), "modelmore");
  EXPECT_EQ(*bundle->Find("b"), 1U);
  const auto array = bundle->At(1);
  ASSERT_TRUE(array.ok()) << array.status().ToString();
  EXPECT_EQ(array->view.device.type, device().type);
  EXPECT_TRUE(array->view.read_only);
  EXPECT_TRUE(IsFilled(array->view, 5000, 7));
}

// Publish checks a manifest, but its maker may write it afterwards.
TEST_P(AllKindsTest, ABundleThatItsMakerSpoilsIsRefusedWhenItIsOpened) {
  Broker writer(options());
  const auto plan = BundlePlan::For(std::vector<BundleArray>{{"a", {1, 8, 1}, {9}}, {"b", {1, 8, 1}, {9}}});
  auto placed = writer.Empty(plan->specs(), {.device = device()});
  ASSERT_TRUE(placed.ok() && plan->WriteTo(*placed).ok());
  const Broker::PublishOptions as_bundle{.name = "m", .structure = std::string(Bundle::kStructure)};
  ASSERT_TRUE(writer.Publish(*placed, as_bundle).ok());
  const View& manifest = placed->views()[0];
  auto spoilt = CopyToHeap(manifest);
  ASSERT_TRUE(spoilt.ok());
  // The name of the second entry becomes that of the first one.
  auto* const entries = static_cast<char*>(spoilt->data) + 64;
  std::copy(entries + 8, entries + 16, entries + 32 + 8);
  if (device().type == kDeviceCpu) {
    CopyCompact(*spoilt, manifest.data);
  } else {
    ASSERT_TRUE(CopyToGpus({&*spoilt, 1}, {&manifest, 1}).ok());
  }

  Broker reader(options());
  const auto acquired = reader.Acquire({.name = "m"});
  ASSERT_TRUE(acquired.ok()) << acquired.status().ToString();
  const auto bundle = Bundle::Of(acquired->views);
  EXPECT_EQ(bundle.status().reason(), "MALFORMED_BUNDLE");
  EXPECT_EQ(bundle.status().message(), "the bundle's manifest is malformed: two arrays are named 'a'");
  if (device().type != kDeviceCpu) return;
  EXPECT_EQ(reader.Put(acquired->views, as_bundle).status().reason(), "MALFORMED_BUNDLE");
  ab_options to{};
  to.size = sizeof to;
  to.address = directory_.c_str();
  ab_broker* broker = nullptr;
  ab_array* array = nullptr;
  ASSERT_EQ(ab_connect(&to, &broker), AB_OK) << ab_message();
  EXPECT_EQ(ab_open_bundle(broker, "m", 0, &array), AB_INVALID_ARGUMENT);
  EXPECT_STREQ(ab_reason(), "MALFORMED_BUNDLE");
  ab_disconnect(broker);
}

INSTANTIATE_TEST_SUITE_P(Kinds, AllKindsTest,
                         ::testing::Values(Kind{HandleKind::kMemfd, true}, Kind{HandleKind::kMemfd, false},
                                           Kind{HandleKind::kCudaVmm, true}, Kind{HandleKind::kCudaVmm, false},
                                           Kind{HandleKind::kCudaIpc, true}, Kind{HandleKind::kCudaIpc, false}),
                         [](const auto& of) {
                           return std::string(NameOf(of.param.kind)) + (of.param.catalogue ? "_Catalogue" : "_Calls");
                         });

}  // namespace
}  // namespace arraybridge
