// SPDX-License-Identifier: Apache-2.0
// Devices with several backends, sessions that open some memory kinds, and memory whose holders the kernel cannot
// report.
#include "tests/unit/broker/hazard_reader.h"
#include "tests/unit/broker/kinds_fixture.h"

namespace arraybridge::daemon {
namespace {

TEST_F(KindsTest, ADeviceIsServedByTheFirstKindThatTheSessionOpens) {
  const auto both = Allocated(Open({HandleKind::kMemfd, HandleKind::kCudaIpc, HandleKind::kCudaVmm}));
  EXPECT_EQ(both.kind, HandleKind::kCudaVmm);
  EXPECT_EQ(both.device, kGpu);
  EXPECT_TRUE(both.descriptor.valid());
  const auto legacy = Allocated(Open({HandleKind::kCudaIpc}));
  EXPECT_EQ(legacy.kind, HandleKind::kCudaIpc);
  EXPECT_EQ(legacy.opaque.size(), 64u);
  EXPECT_FALSE(legacy.descriptor.valid());
}

TEST_F(KindsTest, WhoOpensNoneOfItsKindsIsToldWhichAndWhy) {
  Peer peer{.uid = 1000, .client = "test"};
  peer.refused = "cuda_ipc is refused: it runs in another PID namespace";
  const auto session = broker_.OpenSession(std::move(peer))->session;
  const auto refused = broker_.Allocate(session, {"default", kGpu, kPage});
  EXPECT_THAT(refused, FailsWith(Code::kFailedPrecondition, "KIND_NOT_OFFERED"));
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("GPU-1 is shared as cuda_vmm, cuda_ipc"));
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("opens memfd; cuda_ipc is refused"));
  const auto unknown = broker_.Allocate(session, {"default", Device{kDeviceCuda, 0, "GPU-2"}, kPage});
  EXPECT_THAT(unknown, FailsWith(Code::kInvalidArgument, "UNKNOWN_DEVICE"));
  EXPECT_EQ(unknown.status().message(), "no device GPU-2; there are: CPU, GPU-1") << "each device once";
}

TEST_F(KindsTest, AShareOfAnotherKindIsNotLeased) {
  const auto writer = Open({HandleKind::kCudaVmm});
  const auto arena = Allocated(writer);
  Publish(writer, arena);
  EXPECT_THAT(Acquire(Open({HandleKind::kMemfd})), FailsWith(Code::kFailedPrecondition, "KIND_NOT_OFFERED"));
  EXPECT_EQ(broker_.TakeSnapshot().leases, 0u);
  EXPECT_TRUE(Acquire(Open({HandleKind::kMemfd, HandleKind::kCudaVmm})).ok());
}

// CUDA_VISIBLE_DEVICES may differ between processes.
TEST_F(KindsTest, MemoryOfAGpuThatASessionDoesNotSeeIsNotLeasedToIt) {
  const auto writer = Open({HandleKind::kCudaVmm});
  const auto arena = Allocated(writer);
  Publish(writer, arena);
  Peer peer{.uid = 1000, .client = "test"};
  peer.kinds = {HandleKind::kMemfd, HandleKind::kCudaVmm};
  peer.gpus = {"GPU-2", "GPU-3"};
  const auto blind = broker_.OpenSession(peer)->session;
  const auto refused = Acquire(blind);
  EXPECT_THAT(refused, FailsWith(Code::kFailedPrecondition, "DEVICE_NOT_VISIBLE"));
  EXPECT_EQ(refused.status().message(),
            "share 'on-gpu' lies on GPU GPU-1, which this session does not see; it sees GPU-2, GPU-3");
  EXPECT_EQ(broker_.TakeSnapshot().leases, 0u);
  EXPECT_THAT(broker_.Allocate(blind, {"default", kGpu, kPage}),
              FailsWith(Code::kFailedPrecondition, "DEVICE_NOT_VISIBLE"));
  peer.gpus = {"GPU-2", "GPU-1"};
  EXPECT_TRUE(Acquire(broker_.OpenSession(peer)->session).ok());

  std::map<SessionId, OfferRow> offers;
  const auto inspected = broker_.Inspect(writer, "default", ShareKey{"on-gpu"});
  ASSERT_TRUE(inspected.ok());
  for (const OfferRow& offer : inspected->offers) offers[offer.who.session] = offer;
  EXPECT_THAT(offers[blind].why_not, testing::HasSubstr("it lies on GPU GPU-1, which this session does not see"));
  EXPECT_FALSE(offers[blind].gpus_unknown);
  EXPECT_EQ(offers[writer].why_not, "");
  EXPECT_TRUE(offers[writer].gpus_unknown);
}

TEST_F(KindsTest, OpaqueBytesComeWithEveryLeaseAndNoDescriptorDoes) {
  const auto writer = Open({HandleKind::kCudaIpc});
  const auto arena = Allocated(writer);
  Publish(writer, arena);
  const auto reader = Open({HandleKind::kCudaIpc});
  for (int i = 0; i < 2; ++i) {
    const auto acquired = Acquire(reader);
    ASSERT_TRUE(acquired.ok()) << acquired.status().ToString();
    EXPECT_EQ(acquired->shares[0].handle.opaque.size(), 64u);
    EXPECT_FALSE(acquired->descriptor.has_value());
  }
  ListFilter all;
  all.page_size = 10;
  EXPECT_TRUE(broker_.ListShares(reader, all)->rows.at(0).handle.opaque.empty()) << "a list leases nothing";
}

TEST_F(KindsTest, DeviceMemoryIsNotSealed) {
  const auto writer = Open({HandleKind::kCudaVmm});
  const auto arena = Allocated(writer);
  PublishCall call;
  call.ns = "default";
  call.name = "sealed";
  call.arena = ArenaId{arena.arena};
  call.arena_generation = arena.generation;
  call.size = 256;
  call.sealed = true;
  EXPECT_THAT(broker_.Publish(writer, std::move(call)), FailsWith(Code::kFailedPrecondition, "CANNOT_BE_SEALED"));
}

TEST_F(KindsTest, BytesAreKeptUntilWhoHadThemSaysThatItUnmapped) {
  const auto writer = Open({HandleKind::kCudaVmm});
  const auto arena = Allocated(writer);
  Publish(writer, arena);
  const auto reader = Open({HandleKind::kCudaVmm});
  const auto acquired = Acquire(reader);
  ASSERT_TRUE(acquired.ok());
  Release(reader, *acquired);
  Withdraw(writer);
  ASSERT_TRUE(broker_.Release(writer, {}, {&arena.arena, 1}, {}).ok());  // unmapped and given back
  EXPECT_EQ(Swept(), 0u);
  EXPECT_EQ(vmm_.living, 1u);
  ASSERT_TRUE(broker_.Release(reader, {}, {}, {&arena.arena, 1}).ok());
  EXPECT_TRUE(broker_.sweep_wanted());
  EXPECT_EQ(Swept(), kPage);
  EXPECT_EQ(vmm_.living, 0u);
  EXPECT_EQ(broker_.TakeSnapshot().charged_bytes, 0u);
}

TEST_F(KindsTest, AnUnmapThatCrossedALeaseOfOpaqueBytesIsNoNews) {
  const auto writer = Open({HandleKind::kCudaIpc});
  const auto arena = Allocated(writer);
  Publish(writer, arena);
  const auto reader = Open({HandleKind::kCudaIpc});
  const auto acquired = Acquire(reader);
  ASSERT_TRUE(acquired.ok());
  ASSERT_TRUE(broker_.Release(reader, {}, {}, {&arena.arena, 1}).ok());  // sent before the lease arrived
  Release(reader, *acquired);
  Withdraw(writer);
  ASSERT_TRUE(broker_.Release(writer, {}, {&arena.arena, 1}, {}).ok());
  EXPECT_EQ(Swept(), 0u) << "the reader opened it after all";
  ASSERT_TRUE(broker_.Release(reader, {}, {}, {&arena.arena, 1}).ok());
  EXPECT_EQ(Swept(), kPage);
}

TEST_F(KindsTest, AWriterThatEndedKeepsItsBytesWhileItsProcessLives) {
  Sleeper process;
  const auto writer = Open({HandleKind::kCudaIpc}, process.Watch());
  Allocated(writer);
  broker_.EndSession(writer);
  EXPECT_EQ(Swept(), 0u);
  EXPECT_EQ(ipc_.living, 1u);
  EXPECT_EQ(broker_.TakeSnapshot().dying_arenas, 1u);
  EXPECT_TRUE(broker_.MayBeMappedElsewhere());
  process.Kill();
  EXPECT_FALSE(broker_.MayBeMappedElsewhere());
  EXPECT_EQ(Swept(), kPage);
  EXPECT_EQ(ipc_.living, 0u);
}

TEST_F(KindsTest, AReaderThatEndedKeepsThemToo) {
  Sleeper process;
  const auto writer = Open({HandleKind::kCudaIpc});
  const auto arena = Allocated(writer);
  Publish(writer, arena);
  const auto reader = Open({HandleKind::kCudaIpc}, process.Watch());
  ASSERT_TRUE(Acquire(reader).ok());
  broker_.EndSession(reader);
  Withdraw(writer);
  ASSERT_TRUE(broker_.Release(writer, {}, {&arena.arena, 1}, {}).ok());
  EXPECT_EQ(Swept(), 0u);
  process.Kill();
  EXPECT_EQ(Swept(), kPage);
}

// A GPU may have more memory than the host serves.
TEST_F(KindsTest, WhatAHoldPinsIsMeasuredByItsOwnDevice) {
  const auto writer = Open({HandleKind::kCudaVmm});
  const auto arena = broker_.Allocate(writer, {"default", kGpu, kCapacity * 3 / 4});
  ASSERT_TRUE(arena.ok()) << arena.status().ToString();
  ASSERT_TRUE(broker_.Mapped(writer, ArenaId{arena->handle.arena}).ok());
  Reader reader(broker_, Open({HandleKind::kCudaVmm}));
  PublishCall small = Call(arena->handle);
  small.size = kCapacity / 4;
  ASSERT_TRUE(broker_.Publish(writer, small).ok());
  ASSERT_TRUE(reader.Hold("on-gpu"));
  Withdraw(writer);
  EXPECT_TRUE(broker_.hazards_waiting());
  EXPECT_TRUE(broker_.PollHazards().over_limit.empty());
  PublishCall more = Call(arena->handle);
  more.offset = kCapacity / 4;
  more.size = kCapacity / 4 + kPage;
  ASSERT_TRUE(broker_.Publish(writer, more).ok());
  ASSERT_TRUE(reader.Hold("on-gpu", 1));
  Withdraw(writer);
  EXPECT_EQ(broker_.PollHazards().over_limit, std::vector{reader.session}) << "more than half of the GPU";
}

}  // namespace
}  // namespace arraybridge::daemon
