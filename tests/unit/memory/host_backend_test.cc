// SPDX-License-Identifier: Apache-2.0
// The host backend: capacity, footprints, failures. conformance/memory_test.cc has the requirements on every backend.
#include "daemon/memory/host/host_backend.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "daemon/memory/host/memfd.h"
#include "proto/boundary/failpoint.h"
#include "proto/boundary/huge_pages.h"
#include "proto/boundary/pages/huge_page_size.h"
#include "tests/unit/memory/host.h"

namespace arraybridge::daemon {
namespace {

// 4 KiB; 64 KiB on some kernels of aarch64.
const auto kHostPage = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));

TEST(HostBackend, RefusesABlockThatDoesNotFitAndNamesTheNumbers) {
  const auto backend = MakeHostBackend({.capacity_bytes = 2 * kMiB, .huge_pages = false});
  const auto first = backend->Allocate(kHost, kMiB);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  const auto refused = backend->Allocate(kHost, kMiB + 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(refused.status().reason(), "DEVICE_FULL");
  const std::string wanted = std::to_string(kMiB + kHostPage);
  EXPECT_EQ(refused.status().message(), "host memory: " + wanted + " bytes do not fit (1048576 of 2097152 in use)");
  EXPECT_EQ(backend->usage(kHost).allocated_bytes, kMiB);
}

TEST(HostBackend, AFailedAllocationReturnsItsReservation) {
  const auto backend = MakeHostBackend({.capacity_bytes = kMiB, .huge_pages = false});
  for (const char* step : {"memfd_create:error", "memfd_reopen:error"}) {
    ASSERT_EQ(::setenv("ARRAYBRIDGE_FAILPOINT", step, 1), 0);
    const auto refused = backend->Allocate(kHost, kMiB);
    ASSERT_EQ(::unsetenv("ARRAYBRIDGE_FAILPOINT"), 0);
    if (!kFailpointsWork) continue;
    ASSERT_FALSE(refused.ok()) << step;
    EXPECT_EQ(refused.status().code(), Code::kResourceExhausted) << step;
    EXPECT_EQ(backend->usage(kHost).allocated_bytes, 0u) << step;
  }
  EXPECT_TRUE(backend->Allocate(kHost, kMiB).ok());
}

TEST(HostBackend, FootprintsArePagesAndNeverWrap) {
  const auto backend = MakeHostBackend({.capacity_bytes = kMiB, .huge_pages = false});
  EXPECT_EQ(backend->Footprint(kHost, 0), 0u);
  EXPECT_EQ(backend->Footprint(kHost, 1), kHostPage);
  EXPECT_EQ(backend->Footprint(kHost, kHostPage), kHostPage);
  EXPECT_EQ(backend->Footprint(kHost, kHostPage + 1), 2 * kHostPage);
  EXPECT_EQ(backend->Footprint(kHost, UINT64_MAX), 0u);
  EXPECT_EQ(backend->Footprint(kHost, UINT64_MAX - kHostPage), UINT64_MAX - kHostPage + 1);
}

TEST(HostBackend, RefusesAFileThatTheKernelCannotCreate) {
  const auto backend = MakeHostBackend({.capacity_bytes = UINT64_MAX, .huge_pages = false});
  const auto refused = backend->Allocate(kHost, 1ull << 63);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(backend->usage(kHost).allocated_bytes, 0u);
}

TEST(HostBackend, ABlockMayOutliveItsBackend) {
  auto backend = MakeHostBackend({.capacity_bytes = kMiB, .huge_pages = false});
  auto block = backend->Allocate(kHost, 1);
  ASSERT_TRUE(block.ok());
  backend.reset();
  EXPECT_TRUE((*block)->Export(Access::kRead).ok());
}

TEST(HostBackend, EveryPageIsPopulatedBeforeTheBlockIsReturned) {
  const auto backend = MakeHostBackend({.capacity_bytes = 8 * kMiB});
  const auto block = backend->Allocate(kHost, 5 * kMiB);
  ASSERT_TRUE(block.ok()) << block.status().ToString();
  const auto handle = (*block)->Export(Access::kRead);
  ASSERT_TRUE(handle.ok());
  struct stat info {};
  ASSERT_EQ(::fstat(handle->descriptor.get(), &info), 0);
  EXPECT_EQ(static_cast<uint64_t>(info.st_size), (*block)->size());
  EXPECT_EQ(static_cast<uint64_t>(info.st_blocks) * 512, (*block)->size());
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(HostBackend, ABlockCannotBeResized) {
  const auto backend = MakeHostBackend({.capacity_bytes = kMiB, .huge_pages = false});
  const auto block = backend->Allocate(kHost, 2 * kHostPage);
  ASSERT_TRUE(block.ok());
  const auto handle = (*block)->Export(Access::kWrite);  // not sealed yet; its producer is about to map it
  ASSERT_TRUE(handle.ok());
  const int fd = handle->descriptor.get();
  const auto end = static_cast<off_t>(2 * kHostPage);
  for (const uint64_t size : {uint64_t{0}, kHostPage, kMiB})
    EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(size)), -1) << size;
  EXPECT_EQ(::fallocate(fd, FALLOC_FL_KEEP_SIZE, end, 4096), -1);
  EXPECT_EQ(::pwrite(fd, "x", 1, end), -1);
  struct stat info {};
  ASSERT_EQ(::fstat(fd, &info), 0);
  EXPECT_EQ(info.st_size, end);
  EXPECT_EQ(info.st_blocks * 512, end);
}

TEST(HostBackend, AnArenaWithHolesIsNotSealed) {
  const auto backend = MakeHostBackend({.capacity_bytes = kMiB, .huge_pages = false});
  const auto block = backend->Allocate(kHost, 8192);
  ASSERT_TRUE(block.ok());
  const auto handle = (*block)->Export(Access::kWrite);
  ASSERT_TRUE(handle.ok());
  ASSERT_EQ(::fallocate(handle->descriptor.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096), 0);
  EXPECT_EQ((*block)->Seal().status().code(), Code::kFailedPrecondition);
  EXPECT_EQ((*block)->Seal().status().code(), Code::kFailedPrecondition);  // another call returns the same error
}

// Its producer forbids further seals. That is permanent, so the result must not look like "later".
TEST(HostBackend, SealReportsThatTheProducerForbidsSeals) {
  const auto backend = MakeHostBackend({.capacity_bytes = kMiB, .huge_pages = false});
  const auto block = backend->Allocate(kHost, 8192);
  ASSERT_TRUE(block.ok());
  const auto handle = (*block)->Export(Access::kWrite);
  ASSERT_TRUE(handle.ok());
  ASSERT_EQ(*(*block)->Seal(), Immutability::kByContract);
  ASSERT_EQ(::fcntl(handle->descriptor.get(), F_ADD_SEALS, F_SEAL_SEAL), 0);
  EXPECT_EQ((*block)->Seal().status().code(), Code::kFailedPrecondition);
}

// A reader's GPU driver pins pages, as a pipe does into which they are spliced.
TEST(HostBackend, PagesThatAReaderPinsDelayThePermanentSealAlone) {
  const auto backend = MakeHostBackend({.capacity_bytes = kMiB, .huge_pages = false});
  const auto block = backend->Allocate(kHost, 8192);
  ASSERT_TRUE(block.ok());
  ASSERT_EQ(*(*block)->Seal(), Immutability::kByContract);
  const auto handle = (*block)->Export(Access::kRead);
  ASSERT_TRUE(handle.ok());
  void* const map = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, handle->descriptor.get(), 0);
  ASSERT_NE(map, MAP_FAILED);
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const iovec pages{map, 8192};
  ASSERT_EQ(::vmsplice(pipe[1], &pages, 1, 0), 8192);
  const auto pinned = (*block)->Seal();
  ASSERT_TRUE(pinned.ok()) << pinned.status().ToString();
  EXPECT_EQ(*pinned, Immutability::kByContract);
  ::close(pipe[0]);
  ::close(pipe[1]);
  const auto released = (*block)->Seal();
  ASSERT_TRUE(released.ok()) << released.status().ToString();
  EXPECT_EQ(*released, Immutability::kEnforced);
  ::munmap(map, 8192);
}

TEST(Memfd, ASealThatComesTooEarlyReturnsBusy) {
  const auto fd = CreateMemfd(4096);
  ASSERT_TRUE(fd.ok());
  void* const map = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0);
  ASSERT_NE(map, MAP_FAILED);
  EXPECT_EQ(AddMemfdSeals(fd->get(), F_SEAL_WRITE), EBUSY);
  ::munmap(map, 4096);
  EXPECT_EQ(AddMemfdSeals(fd->get(), F_SEAL_WRITE), 0);
}

TEST(Memfd, IsNotAloneWhileAnotherDescriptionOrMappingExists) {
  auto fd = CreateMemfd(4096);
  ASSERT_TRUE(fd.ok());
  const auto keep = ReopenMemfd(fd->get(), O_RDONLY);
  auto other = ReopenMemfd(fd->get(), O_RDWR);
  ASSERT_TRUE(keep.ok() && other.ok());
  fd->reset();  // the kernel does not count the first description, so it must be closed
  EXPECT_FALSE(HasMemfdAlone(keep->get()));
  void* const map = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, other->get(), 0);
  ASSERT_NE(map, MAP_FAILED);
  other->reset();
  EXPECT_FALSE(HasMemfdAlone(keep->get()));
  ::munmap(map, 4096);
  EXPECT_TRUE(HasMemfdAlone(keep->get()));
  EXPECT_TRUE(HasMemfdAlone(keep->get()));  // the check has no side effect
}

// The kilobytes of this process's mapping at `address` that the kernel maps as huge pages.
uint64_t HugeKilobytes(const void* address) {
  char begin[32];
  std::snprintf(begin, sizeof begin, "%lx-", reinterpret_cast<unsigned long>(address));
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool here = false;
  while (std::getline(maps, line)) {
    if (line.find('-') != std::string::npos && line.find(':') > line.find(' ')) here = line.starts_with(begin);
    if (here && line.starts_with("ShmemPmdMapped:")) return std::stoull(line.substr(std::strlen("ShmemPmdMapped:")));
  }
  return 0;
}

// Whether this kernel makes huge pages of shared memory on request, independently of our code.
bool KernelMakesHugePages() {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE
  const UniqueFd fd(::memfd_create("huge", MFD_CLOEXEC));
  if (::ftruncate(fd.get(), 2 * kMiB) != 0) return false;
  void* const room = ::mmap(nullptr, 4 * kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return false;
  auto* const at = static_cast<std::byte*>(room) + (2 * kMiB - reinterpret_cast<uintptr_t>(room) % (2 * kMiB));
  void* const mapped = ::mmap(at, 2 * kMiB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd.get(), 0);
  bool made = false;
  if (mapped != MAP_FAILED) {
    *at = std::byte{1};
    made = ::madvise(at, 2 * kMiB, kCollapse) == 0 && HugeKilobytes(at) == 2048;
  }
  ::munmap(room, 4 * kMiB);
  return made;
}

TEST(HostBackend, BlocksOfHugePagesAreMappedWholeAtOneFaultEach) {
  constexpr uint64_t kSize = 6 * kMiB + 12288;
  const auto backend = MakeHostBackend({.capacity_bytes = 16 * kMiB});
  auto block = backend->Allocate(kHost, kSize);
  ASSERT_TRUE(block.ok()) << block.status().ToString();
  const auto handle = (*block)->Export(Access::kWrite);
  ASSERT_TRUE(handle.ok());
  for (const uint64_t from : {uint64_t{0}, 2 * kMiB, 4096ul}) {
    auto* const bytes =
        static_cast<std::byte*>(MapFile(handle->size - from, PROT_READ, MAP_SHARED, handle->descriptor.get(), from));
    ASSERT_NE(static_cast<void*>(bytes), MAP_FAILED);
    EXPECT_EQ((reinterpret_cast<uintptr_t>(bytes) - from) % HugePageBytes(), 0u);
    for (uint64_t at = 0; at < handle->size - from; at += 4096) ASSERT_EQ(std::to_integer<int>(bytes[at]), 0) << at;
    const uint64_t huge = HugeKilobytes(bytes);
    ::munmap(bytes, handle->size - from);
    if (huge == 0 && !KernelMakesHugePages()) GTEST_SKIP() << "this kernel makes no huge pages of shared memory";
    EXPECT_EQ(huge, from == 0 ? 6144u : 4096u) << from;
  }
}

TEST(HostBackend, UsesSmallPagesIfConfigured) {
  const auto backend = MakeHostBackend({.capacity_bytes = 8 * kMiB, .huge_pages = false});
  auto block = backend->Allocate(kHost, 4 * kMiB);
  ASSERT_TRUE(block.ok());
  const auto handle = (*block)->Export(Access::kWrite);
  ASSERT_TRUE(handle.ok());
  auto* const bytes = static_cast<std::byte*>(MapFile(4 * kMiB, PROT_READ, MAP_SHARED, handle->descriptor.get()));
  ASSERT_NE(static_cast<void*>(bytes), MAP_FAILED);
  for (uint64_t at = 0; at < 4 * kMiB; at += 4096) ASSERT_EQ(std::to_integer<int>(bytes[at]), 0);
  EXPECT_EQ(HugeKilobytes(bytes), 0u);
  ::munmap(bytes, 4 * kMiB);
}

TEST(MapFile, LeavesNoMappingBeyondTheRequestedRange) {
  const auto fd = CreateMemfd(4 * kMiB);
  ASSERT_TRUE(fd.ok());
  const auto size_kb = [] {
    std::ifstream file("/proc/self/status");
    std::string word;
    while (file >> word && word != "VmSize:") continue;
    uint64_t kb = 0;
    file >> kb;
    return kb;
  };
  const uint64_t before = size_kb();
  std::vector<void*> maps;
  for (int i = 0; i < 50; ++i) maps.push_back(MapFile(3 * kMiB, PROT_READ, MAP_SHARED, fd->get(), kMiB));
  EXPECT_LT(size_kb() - before, 50 * 3 * 1024 + 1024);
  for (void* map : maps) EXPECT_EQ(::munmap(map, 3 * kMiB), 0);
  EXPECT_EQ(MapFile(4 * kMiB, PROT_READ, MAP_SHARED, -1), MAP_FAILED);
  EXPECT_EQ(errno, EBADF);
  EXPECT_LT(size_kb(), before + 1024);
}

}  // namespace
}  // namespace arraybridge::daemon
