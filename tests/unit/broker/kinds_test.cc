// Devices with several backends, sessions that open some of the kinds, and memory whose holders nobody can ask.
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge {
namespace {

const Device kGpu{kDeviceCuda, 0, "GPU-1"};

// GPU memory without bytes: `opaque` handles, or descriptors.
class FakeGpuBlock final : public MemoryBlock {
 public:
  FakeGpuBlock(HandleKind kind, uint64_t size, uint64_t* living) : kind_(kind), size_(size), living_(living) {
    ++*living_;
  }
  ~FakeGpuBlock() override { --*living_; }
  uint64_t size() const override { return size_; }
  Result<Handle> Export(Access) const override {
    Handle handle;
    if (kind_ == HandleKind::kCudaIpc) {
      handle.opaque = std::string(64, 's');
    } else {
      handle.descriptor = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    }
    return handle;
  }
  Result<Immutability> Seal() override { return Immutability::kByContract; }
  bool HeldElsewhere() const override { return false; }
  bool KnowsHolders() const override { return false; }
  bool MayBeEnforced() const override { return false; }

 private:
  const HandleKind kind_;
  const uint64_t size_;
  uint64_t* const living_;
};

class FakeGpuBackend final : public MemoryBackend {
 public:
  explicit FakeGpuBackend(HandleKind kind) : kind_(kind) {}
  HandleKind kind() const override { return kind_; }
  std::vector<Device> devices() const override { return {kGpu}; }
  uint64_t Footprint(const Device&, uint64_t size) const override { return (size + kPage - 1) / kPage * kPage; }
  Result<std::unique_ptr<MemoryBlock>> Allocate(const Device& device, uint64_t size) override {
    return std::unique_ptr<MemoryBlock>(std::make_unique<FakeGpuBlock>(kind_, Footprint(device, size), &living));
  }
  Usage usage(const Device&) const override { return {kCapacity, 0, 0}; }
  uint64_t Trim() override { return 0; }

  uint64_t living = 0;

 private:
  const HandleKind kind_;
};

// A process that sleeps until it is killed.
class Sleeper {
 public:
  Sleeper() : pid_(::fork()) {
    if (pid_ == 0) {
      ::pause();
      ::_exit(0);
    }
  }
  ~Sleeper() { Kill(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ProcessFd Watch() const {
    return std::make_shared<const UniqueFd>(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

class KindsTest : public testing::Test {
 protected:
  SessionId Open(std::vector<HandleKind> kinds, ProcessFd process = nullptr) {
    Peer peer{.uid = 1000, .client = "test"};
    peer.kinds = std::move(kinds);
    peer.process = std::move(process);
    return broker_.OpenSession(std::move(peer))->session;
  }
  Handle Allocated(SessionId session) {
    auto arena = broker_.Allocate(session, {"default", kGpu, kPage});
    EXPECT_TRUE(arena.ok()) << arena.status().ToString();
    EXPECT_TRUE(broker_.Mapped(session, ArenaId{arena->handle.arena}).ok());
    return std::move(arena->handle);
  }
  void Publish(SessionId session, const Handle& arena) {
    PublishCall call;
    call.ns = "default";
    call.name = "on-gpu";
    call.arena = ArenaId{arena.arena};
    call.arena_generation = arena.generation;
    call.size = 256;
    const auto published = broker_.Publish(session, std::move(call));
    ASSERT_TRUE(published.ok()) << published.status().ToString();
    EXPECT_EQ(published->immutability, Immutability::kByContract);
  }
  Result<AcquiredShares> Acquire(SessionId session) {
    const ShareKey key{.name = "on-gpu"};
    return broker_.Acquire(session, "default", {&key, 1}, true);
  }
  void Release(SessionId session, const AcquiredShares& acquired) {
    const uint64_t lease = Number(acquired.shares.at(0).lease);
    ASSERT_TRUE(broker_.Release(session, {&lease, 1}, {}, {}).ok());
  }
  void Withdraw(SessionId session) {
    const ShareKey key{.name = "on-gpu"};
    ASSERT_TRUE(broker_.Withdraw(session, "default", {&key, 1}).ok());
  }
  uint64_t Swept() { return broker_.Sweep(Clock::now()).freed_bytes; }

  Config config_;
  FakeBackend host_{kCapacity};
  FakeGpuBackend vmm_{HandleKind::kCudaVmm};
  FakeGpuBackend ipc_{HandleKind::kCudaIpc};
  Broker broker_{config_, {&host_, &vmm_, &ipc_}};
};

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
  peer.refused = "CUDA_IPC is refused: it runs in another PID namespace";
  const auto session = broker_.OpenSession(std::move(peer))->session;
  const auto refused = broker_.Allocate(session, {"default", kGpu, kPage});
  EXPECT_THAT(refused, FailsWith(Code::kFailedPrecondition, "KIND_NOT_OFFERED"));
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("GPU-1 is shared as CUDA_VMM, CUDA_IPC"));
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("opens MEMFD; CUDA_IPC is refused"));
  EXPECT_THAT(broker_.Allocate(session, {"default", Device{kDeviceCuda, 0, "GPU-2"}, kPage}),
              FailsWith(Code::kInvalidArgument, "UNKNOWN_DEVICE"));
}

TEST_F(KindsTest, AShareOfAnotherKindIsNotLeased) {
  const auto writer = Open({HandleKind::kCudaVmm});
  const auto arena = Allocated(writer);
  Publish(writer, arena);
  EXPECT_THAT(Acquire(Open({HandleKind::kMemfd})), FailsWith(Code::kFailedPrecondition, "KIND_NOT_OFFERED"));
  EXPECT_EQ(broker_.TakeSnapshot().leases, 0u);
  EXPECT_TRUE(Acquire(Open({HandleKind::kMemfd, HandleKind::kCudaVmm})).ok());
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
  EXPECT_TRUE(broker_.ListShares(reader, all)->rows.at(0).handle.opaque.empty()) << "who lists leases nothing";
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
  process.Kill();
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

}  // namespace
}  // namespace arraybridge
