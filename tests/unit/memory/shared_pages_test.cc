// SPDX-License-Identifier: Apache-2.0
// Pages that the daemon shares with a client: their memory, their seals, and their cost after they are mapped.
#include "daemon/memory/shared_pages/shared_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "daemon/memory/shared_pages/hazard_page.h"
#include "daemon/memory/shared_pages/session_queue.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kBytes = 3 * 4096;

int64_t Descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}
// The number of this process's mappings with this name.
int64_t Mappings(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(name) == std::string::npos ? 0 : 1;
  return count;
}
std::unique_ptr<SharedPages> Make() { return *SharedPages::Create(kBytes, PROT_READ, "arraybridge-test", "a thing"); }
bool IsWhole(const UniqueFd& file) {
  struct stat info {};
  return ::fstat(file.get(), &info) == 0 && info.st_size == kBytes && info.st_blocks * 512 >= info.st_size;
}
bool MapsWritable(const UniqueFd& file) {
  void* const base = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (base != MAP_FAILED) ::munmap(base, kBytes);
  return base != MAP_FAILED;
}

TEST(SharedPagesTest, AllPagesHaveMemory) {
  const auto pages = Make();
  const auto file = *pages->Export(true);
  EXPECT_TRUE(IsWhole(file));
  const uint64_t said = 0x1122334455667788;
  ASSERT_TRUE(pages->Write(4096, &said, sizeof said).ok());
  EXPECT_EQ(static_cast<const uint64_t*>(pages->base())[512], said);
  ASSERT_EQ(::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes), 0)
      << "its client still has it";
  ASSERT_TRUE(pages->Seal().ok());
  EXPECT_TRUE(IsWhole(file)) << "otherwise reading it would raise SIGBUS";
}

TEST(SharedPagesTest, AfterTheSealExistingMappingsStayWritable) {
  const auto pages = Make();
  const auto early = *pages->Export(true);
  auto* const written = static_cast<char*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, early.get(), 0));
  ASSERT_NE(static_cast<void*>(written), MAP_FAILED);
  ASSERT_FALSE(pages->sealed());
  ASSERT_TRUE(pages->Seal().ok());
  ASSERT_TRUE(pages->Seal().ok()) << "a second seal succeeds";
  EXPECT_TRUE(pages->sealed());
  written[0] = 'w';
  EXPECT_EQ(*static_cast<const char*>(pages->base()), 'w');
  ::munmap(written, kBytes);
  EXPECT_FALSE(MapsWritable(early));
  EXPECT_EQ(::fallocate(early.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes), -1);
  EXPECT_EQ(::ftruncate(early.get(), 0), -1);
  EXPECT_EQ(::fcntl(early.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM) << "no process can add a seal";
}

TEST(SharedPagesTest, ADescriptionIsIndependentAndWritableOnlyBeforeTheSeal) {
  const auto pages = Make();
  const auto mode = [](const UniqueFd& file) { return ::fcntl(file.get(), F_GETFL) & O_ACCMODE; };
  EXPECT_EQ(mode(*pages->Export(true)), O_RDWR);
  EXPECT_EQ(mode(*pages->Export(false)), O_RDONLY);
  ASSERT_TRUE(pages->Seal().ok());
  const Status refused = pages->Export(true).status();
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
  EXPECT_EQ(refused.message(), "a thing is already mapped");
  EXPECT_EQ(mode(*pages->Export(false)), O_RDONLY);
}

TEST(SharedPagesTest, NeedNoDescriptorAfterCloseFileAndNoMemoryAfterDestruction) {
  const int64_t before = Descriptors();
  auto pages = Make();
  EXPECT_EQ(Descriptors(), before + 1);
  pages->CloseFile();
  EXPECT_EQ(Descriptors(), before);
  EXPECT_EQ(pages->Export(false).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(Mappings("arraybridge-test"), 1);
  pages.reset();
  EXPECT_EQ(Mappings("arraybridge-test"), 0);
}

TEST(SharedPagesTest, ASessionQueueAndAHazardPageCloseTheirFilesWhenMapped) {
  const int64_t before = Descriptors();
  const auto queue = *SessionQueue::Create(1);
  const auto holds = *HazardPage::Create();
  EXPECT_EQ(Descriptors(), before + 3);
  EXPECT_TRUE(holds->Export().ok());
  ASSERT_TRUE(queue->Seal([] {}).ok() && holds->Seal().ok() && holds->Seal().ok());
  EXPECT_EQ(Descriptors(), before);
  EXPECT_EQ(holds->Export().status().reason(), "HAZARD_PAGE_MAPPED");
  EXPECT_EQ(holds->page().version, hazard::kVersion);
}

TEST(SharedPagesTest, AHazardPageIsSealedWhenItIsMapped) {
  const auto holds = *HazardPage::Create();
  const auto file = *holds->Export();
  ASSERT_TRUE(holds->Seal().ok());
  void* const base = ::mmap(nullptr, sizeof(hazard::Page), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  EXPECT_EQ(base, MAP_FAILED);
}

}  // namespace
}  // namespace arraybridge::daemon
