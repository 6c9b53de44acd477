// SPDX-License-Identifier: Apache-2.0
// The requirements on every backend and its mapper. A new kind of memory is a new line at the end. Properties that only
// one kind has (seals) are tested for that kind only.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "client/memory/cuda/cuda_ipc_mapper.h"
#include "client/memory/cuda/cuda_vmm_mapper.h"
#include "client/memory/host/host_mapper.h"
#include "client/memory/memory_mapper.h"
#include "daemon/memory/cuda/cuda_ipc_backend.h"
#include "daemon/memory/cuda/cuda_vmm_backend.h"
#include "daemon/memory/host/host_backend.h"
#include "daemon/memory/host/warm_backend.h"
#include "daemon/memory/memory_backend.h"
#include "tests/integration/build_tree.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kCapacity = 16ull << 20;
constexpr uint64_t kSize = 1ull << 20;

struct Pair {
  std::string name;
  std::function<std::unique_ptr<MemoryBackend>(uint64_t capacity)> backend;
  std::function<std::unique_ptr<MemoryMapper>()> mapper;
};

// A warm backend that owns its inner backend.
class WarmOverHost final : public MemoryBackend {
 public:
  explicit WarmOverHost(uint64_t capacity) : host_(MakeHostBackend({.capacity_bytes = capacity})) {
    warm_ = std::make_unique<WarmBackend>(*host_, WarmBackendOptions{.cache_bytes = capacity / 2});
    warm_->Refill();
  }
  HandleKind kind() const override { return warm_->kind(); }
  std::vector<Device> devices() const override { return warm_->devices(); }
  uint64_t Footprint(const Device& device, uint64_t size) const override { return warm_->Footprint(device, size); }
  Result<std::unique_ptr<MemoryBlock>> Allocate(const Device& device, uint64_t size) override {
    return warm_->Allocate(device, size);
  }
  Usage usage(const Device& device) const override { return warm_->usage(device); }
  uint64_t Trim() override { return warm_->Trim(); }

 private:
  std::unique_ptr<MemoryBackend> host_;
  std::unique_ptr<WarmBackend> warm_;
};

// Uses the simulated driver, which here lets a process import its own handles, as cards do (build_tree.h chooses). Each
// GPU hands out at most `capacity`.
using MakeCudaBackend = std::unique_ptr<MemoryBackend> (*)(std::vector<std::shared_ptr<CudaGpu>>);
std::unique_ptr<MemoryBackend> Cuda(MakeCudaBackend make, uint64_t capacity) {
  ::setenv("SIMULATED_CUDA", "own", 1);
  const auto gpus = FindCudaGpus(DriverUnderTest(SIMULATED_CUDA_LIBRARY), GpuTable{});
  EXPECT_TRUE(gpus.ok()) << gpus.status().ToString();
  std::vector<std::shared_ptr<CudaGpu>> small;
  for (const auto& gpu : gpus->all) {
    const std::shared_ptr<const cuda::Driver> driver(gpu, &gpu->driver());
    small.push_back(std::make_shared<CudaGpu>(driver, gpu->ordinal(), gpu->device(), gpu->refusals(),
                                              gpu->granularity(), capacity));
  }
  return make(std::move(small));
}

View BytesAt(void* data, uint64_t size, const Device& device) {
  auto view = Describe(data, {1, 8, 1}, {static_cast<int64_t>(size)}, {}, device, false, nullptr);
  EXPECT_TRUE(view.ok()) << view.status().ToString();
  return *std::move(view);
}

class MemoryLaw : public testing::TestWithParam<Pair> {
 protected:
  std::unique_ptr<MemoryBlock> Allocate(uint64_t size = kSize) {
    auto block = backend_->Allocate(device_, size);
    EXPECT_TRUE(block.ok()) << block.status().ToString();
    return *std::move(block);
  }
  static Handle Export(const MemoryBlock& block, Access access) {
    auto handle = block.Export(access);
    EXPECT_TRUE(handle.ok()) << handle.status().ToString();
    handle->arena = 1;
    return *std::move(handle);
  }
  std::unique_ptr<Mapping> Map(const MemoryBlock& block, Access access) {
    auto mapping = mapper_->Map(Export(block, access), device_, access);
    EXPECT_TRUE(mapping.ok()) << mapping.status().ToString();
    return *std::move(mapping);
  }
  // The memory may not be accessible from the host.
  static void Write(Mapping& mapping, uint64_t offset, uint64_t size, uint8_t value) {
    std::vector<uint8_t> bytes(size, value);
    const Status written = mapping.CopyFrom(BytesAt(bytes.data(), size, Device{}), offset);
    EXPECT_TRUE(written.ok()) << written.ToString();
  }
  std::vector<uint8_t> Read(const Mapping& mapping) const {
    const auto copy = CopyToHeap(BytesAt(mapping.data(), mapping.size(), device_));
    EXPECT_TRUE(copy.ok()) << copy.status().ToString();
    const auto* const bytes = static_cast<const uint8_t*>(copy->data);
    return {bytes, bytes + mapping.size()};
  }
  uint64_t InUse() const {
    const auto usage = backend_->usage(device_);
    return usage.allocated_bytes - usage.cached_bytes;
  }

  const std::unique_ptr<MemoryBackend> backend_ = GetParam().backend(kCapacity);
  const std::unique_ptr<MemoryMapper> mapper_ = GetParam().mapper();
  const Device device_ = backend_->devices().at(0);
};

TEST_P(MemoryLaw, TheMapperKnowsTheBackendsDevices) {
  EXPECT_EQ(mapper_->kind(), backend_->kind());
  for (const Device& device : backend_->devices()) {
    const auto local = mapper_->Local(device);
    ASSERT_TRUE(local.ok()) << local.status().ToString();
    EXPECT_EQ(*local, device);
  }
}

TEST_P(MemoryLaw, ImpossibleSizesAreRefused) {
  EXPECT_EQ(backend_->Footprint(device_, 0), 0u);
  EXPECT_EQ(backend_->Footprint(device_, UINT64_MAX), 0u);
  EXPECT_FALSE(backend_->Allocate(device_, 0).ok());
  EXPECT_FALSE(backend_->Allocate(device_, UINT64_MAX).ok());
  EXPECT_EQ(InUse(), 0u);
}

TEST_P(MemoryLaw, CapacityIsTakenByTheFootprintAndReturnedAtTheEnd) {
  auto block = Allocate(1000);
  EXPECT_EQ(InUse(), backend_->Footprint(device_, 1000));
  EXPECT_EQ(block->size(), backend_->Footprint(device_, 1000));
  block.reset();
  EXPECT_EQ(InUse(), 0u);
  const auto refused = backend_->Allocate(device_, kCapacity + 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(InUse(), 0u);
  EXPECT_TRUE(backend_->Allocate(device_, kCapacity).ok());  // the whole capacity, including warm blocks
}

TEST_P(MemoryLaw, BytesReachEveryReaderAndOutliveTheProducer) {
  const auto block = Allocate();
  auto producer = Map(*block, Access::kWrite);
  ASSERT_TRUE(block->Seal().ok());
  Write(*producer, 0, kSize, 7);  // after the seal; the producer's mapping stays writable
  const auto reader = Map(*block, Access::kRead);
  EXPECT_EQ(Read(*reader), Read(*producer));
  Write(*producer, kSize - 1, 1, 9);
  EXPECT_EQ(Read(*reader)[kSize - 1], 9);
  EXPECT_TRUE(producer->Drain().ok());
  producer.reset();
  EXPECT_EQ(Read(*reader)[0], 7);
  EXPECT_EQ(Read(*Map(*block, Access::kRead))[kSize - 1], 9);
}

TEST_P(MemoryLaw, BytesThatDoNotFitAreNotCopied) {
  const auto block = Allocate();
  const auto producer = Map(*block, Access::kWrite);
  std::vector<uint8_t> bytes(2);
  const View two = BytesAt(bytes.data(), 2, Device{});
  EXPECT_TRUE(producer->CopyFrom(two, producer->size() - 2).ok());
  for (const uint64_t offset : {producer->size() - 1, producer->size() + 1, UINT64_MAX}) {
    EXPECT_EQ(producer->CopyFrom(two, offset).code(), Code::kInvalidArgument) << offset;
  }
}

TEST_P(MemoryLaw, AFreshBlockIsZero) {
  const auto block = Allocate();
  const auto producer = Map(*block, Access::kWrite);
  EXPECT_EQ(Read(*producer), std::vector<uint8_t>(producer->size()));
}

TEST_P(MemoryLaw, APrivateMappingKeepsItsWritesToItself) {
  if (backend_->kind() != HandleKind::kMemfd) GTEST_SKIP() << "only host memory has copy-on-write";
  const auto block = Allocate();
  const auto producer = Map(*block, Access::kWrite);
  ASSERT_TRUE(block->Seal().ok());
  std::memset(producer->data(), 7, kSize);
  const Handle handle = Export(*block, Access::kRead);
  const auto reader = mapper_->Map(handle, device_, Access::kRead);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  const auto own = mapper_->MapPrivate(handle, 256, 512);
  ASSERT_TRUE(own.ok()) << own.status().ToString();
  (*own)->data()[0] = std::byte{1};
  EXPECT_EQ((*own)->data()[0], std::byte{1});
  EXPECT_EQ(producer->data()[256], std::byte{7});
  EXPECT_EQ((*reader)->data()[256], std::byte{7});
}

TEST_P(MemoryLaw, ItIsHeldWhileADescriptorOrAMappingExists) {
  const auto block = Allocate();
  if (!block->KnowsHolders()) GTEST_SKIP() << "the mappings of this kind of memory cannot be queried";
  EXPECT_FALSE(block->HeldElsewhere());
  {
    const auto producer = Map(*block, Access::kWrite);
    EXPECT_TRUE(block->HeldElsewhere());
    ASSERT_TRUE(block->Seal().ok());
    EXPECT_TRUE(block->HeldElsewhere());
  }
  EXPECT_FALSE(block->HeldElsewhere());
  {
    const Handle handle = Export(*block, Access::kRead);
    EXPECT_TRUE(block->HeldElsewhere());
    auto reader = mapper_->Map(handle, device_, Access::kRead);
    ASSERT_TRUE(reader.ok());
    const auto own = mapper_->MapPrivate(handle, 0, 256);
    ASSERT_TRUE(own.ok());
    reader->reset();
    EXPECT_TRUE(block->HeldElsewhere());
  }
  EXPECT_FALSE(block->HeldElsewhere());
  ASSERT_TRUE(block->Seal().ok());
  EXPECT_FALSE(block->HeldElsewhere());  // the owner's descriptors do not count
}

TEST_P(MemoryLaw, SealGoesAsFarAsPossible) {
  const auto block = Allocate();
  if (!block->MayBeEnforced()) {
    EXPECT_EQ(*block->Seal(), Immutability::kByContract);
    GTEST_SKIP() << "this kind of memory cannot be sealed";
  }
  auto producer = Map(*block, Access::kWrite);
  for (int i = 0; i < 3; ++i) {
    const auto sealed = block->Seal();
    ASSERT_TRUE(sealed.ok()) << sealed.status().ToString();
    EXPECT_EQ(*sealed, Immutability::kByContract);
    EXPECT_EQ(block->Export(Access::kWrite).status().code(), Code::kFailedPrecondition);
  }
  EXPECT_TRUE(block->HeldElsewhere());  // the query has no effect on the seal
  producer.reset();
  const auto reader = Map(*block, Access::kRead);  // a reader does not prevent the seal
  for (int i = 0; i < 2; ++i) EXPECT_EQ(*block->Seal(), Immutability::kEnforced);
  EXPECT_TRUE(block->Export(Access::kRead).ok());
}

TEST_P(MemoryLaw, EveryDescriptorHasItsOwnDescription) {
  if (backend_->kind() != HandleKind::kMemfd) GTEST_SKIP() << "the driver determines the flags of its descriptors";
  const auto block = Allocate();
  const Handle one = Export(*block, Access::kRead);
  const Handle two = Export(*block, Access::kRead);
  EXPECT_NE(one.descriptor.get(), two.descriptor.get());
  ASSERT_EQ(::fcntl(one.descriptor.get(), F_SETFL, O_RDONLY), 0);  // clears O_NONBLOCK, which only duplicates see
  EXPECT_EQ(::fcntl(two.descriptor.get(), F_GETFL) & O_NONBLOCK, O_NONBLOCK);
  EXPECT_EQ(::fcntl(two.descriptor.get(), F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_EQ(::fcntl(two.descriptor.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST_P(MemoryLaw, AnUnsealedDescriptorIsRefused) {
  const auto block = Allocate();
  if (!block->MayBeEnforced()) GTEST_SKIP() << "this kind of memory cannot be sealed";
  EXPECT_FALSE(mapper_->Map(Export(*block, Access::kRead), device_, Access::kRead).ok());
}

// The errno of an attempt; 0 if it succeeded.
int ErrnoOf(bool ok) { return ok ? 0 : errno; }
int TryMapWritable(int fd) {
  void* const map = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = ErrnoOf(map != MAP_FAILED);
  if (map != MAP_FAILED) ::munmap(map, kSize);
  return error;
}
int TryProtectWritable(int fd) {
  void* const map = ::mmap(nullptr, kSize, PROT_READ, MAP_SHARED, fd, 0);
  EXPECT_NE(map, MAP_FAILED);
  const int error = ErrnoOf(::mprotect(map, kSize, PROT_READ | PROT_WRITE) == 0);
  ::munmap(map, kSize);
  return error;
}
int TryPunch(int fd) { return ErrnoOf(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0); }

// The seal matrix: every way in which a process with a read descriptor could try to change bytes that others read.
void ExpectNobodyCanChange(int fd) {
  EXPECT_EQ(TryMapWritable(fd), EACCES);
  EXPECT_EQ(TryProtectWritable(fd), EACCES);
  EXPECT_EQ(ErrnoOf(::pwrite(fd, "x", 1, 0) == 1), EBADF);
  EXPECT_EQ(ErrnoOf(::ftruncate(fd, 0) == 0), EINVAL);
  EXPECT_EQ(TryPunch(fd), EBADF);
  EXPECT_EQ(ErrnoOf(::fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) == 0), EPERM);
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
  const UniqueFd reopened(::open(path.data(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(reopened.valid());  // the same user may reopen it; the seals still apply
  EXPECT_EQ(TryMapWritable(reopened.get()), EPERM);
  EXPECT_EQ(ErrnoOf(::pwrite(reopened.get(), "x", 1, 0) == 1), EPERM);
  EXPECT_EQ(ErrnoOf(::ftruncate(reopened.get(), 0) == 0), EPERM);
  EXPECT_EQ(ErrnoOf(::ftruncate(reopened.get(), 2 * kSize) == 0), EPERM);
  EXPECT_EQ(TryPunch(reopened.get()), EPERM);
}

TEST_P(MemoryLaw, NoReaderCanChangeAnythingWhileTheProducerLivesNorAfter) {
  if (backend_->kind() != HandleKind::kMemfd) GTEST_SKIP() << "only memfds have seals";
  const auto block = Allocate();
  auto producer = Map(*block, Access::kWrite);
  ASSERT_EQ(*block->Seal(), Immutability::kByContract);
  ExpectNobodyCanChange(Export(*block, Access::kRead).descriptor.get());
  producer.reset();
  ASSERT_EQ(*block->Seal(), Immutability::kEnforced);
  ExpectNobodyCanChange(Export(*block, Access::kRead).descriptor.get());
}

INSTANTIATE_TEST_SUITE_P(
    Every, MemoryLaw,
    testing::Values(
        Pair{"Host", [](uint64_t capacity) { return MakeHostBackend({.capacity_bytes = capacity}); }, MakeHostMapper},
        Pair{"Warm", [](uint64_t capacity) { return std::make_unique<WarmOverHost>(capacity); }, MakeHostMapper},
        Pair{"CudaVmm", [](uint64_t capacity) { return Cuda(MakeCudaVmmBackend, capacity); },
             [] { return MakeCudaVmmMapper(DriverUnderTest(SIMULATED_CUDA_LIBRARY)); }},
        Pair{"CudaIpc", [](uint64_t capacity) { return Cuda(MakeCudaIpcBackend, capacity); },
             [] { return MakeCudaIpcMapper(DriverUnderTest(SIMULATED_CUDA_LIBRARY)); }}),
    [](const testing::TestParamInfo<Pair>& param) { return param.param.name; });

}  // namespace
}  // namespace arraybridge::daemon
