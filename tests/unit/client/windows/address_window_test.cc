// SPDX-License-Identifier: Apache-2.0
// An AddressWindow over files of the test's own: one content after another at the same addresses.
#include "client/windows/address_window.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/boundary/unique_fd.h"

namespace arraybridge {
namespace {

constexpr uint64_t kHuge = uint64_t{2} << 20;
constexpr uint64_t kBytes = 3 * kHuge + 5 * 4096;

// A sealed file, as the broker's, whose words are all `value`, and before `offset` another one.
UniqueFd FileOf(uint64_t value, uint64_t offset = 0) {
  const uint64_t bytes = offset + kBytes;
  UniqueFd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  void* const words = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  EXPECT_NE(words, MAP_FAILED);
  auto* const first = static_cast<uint64_t*>(words);
  std::fill(first, first + bytes / 8, ~value);
  std::fill(first + offset / 8, first + bytes / 8, value);
  ::munmap(words, bytes);
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
  return file;
}

std::unique_ptr<AddressWindow> WindowAt(uint64_t offset = 0) {
  auto window = AddressWindow::Reserve(kBytes, offset);
  EXPECT_TRUE(window.ok()) << window.status().ToString();
  return *std::move(window);
}

bool Shows(const AddressWindow& window, uint64_t value) {
  const auto* const words = reinterpret_cast<const uint64_t*>(window.live());
  return std::all_of(words, words + window.bytes() / 8, [value](uint64_t word) { return word == value; });
}

// From one range of a window to the next.
constexpr uint64_t kStride = 4 * kHuge;

// True if the kernel gives this address to no other mapping.
bool IsTaken(uint64_t address) {
  void* const wanted = reinterpret_cast<void*>(address);
  void* const got = ::mmap(wanted, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return true;
  ::munmap(got, 4096);
  return false;
}

TEST(AddressWindowTest, OneFileAfterTheOtherAtTheSameAddresses) {
  const auto window = WindowAt();
  const std::byte* const live = window->live();
  for (uint64_t value = 1; value <= 5; ++value) {
    ASSERT_TRUE(window->MapBeside(FileOf(value).get(), 0).ok());
    EXPECT_TRUE(value == 1 || Shows(*window, value - 1)) << "before the move";
    const Status moved = window->Move();
    ASSERT_TRUE(moved.ok()) << moved.ToString();
    EXPECT_TRUE(Shows(*window, value));
    EXPECT_TRUE(value % 2 == 1 || window->Clear().ok());
    EXPECT_TRUE(Shows(*window, value)) << "after the clean-up";
  }
  EXPECT_EQ(window->live(), live);
}

TEST(AddressWindowTest, TheLiveRangeLiesInItsHugePageAsTheFileDoes) {
  for (const uint64_t offset : {uint64_t{0}, uint64_t{4096}, kHuge - 4096, 5 * kHuge + 8192}) {
    const auto window = WindowAt(offset);
    EXPECT_EQ(reinterpret_cast<uint64_t>(window->live()) % kHuge, offset % kHuge);
    ASSERT_TRUE(window->MapBeside(FileOf(7, offset).get(), offset).ok());
    ASSERT_TRUE(window->Move().ok());
    EXPECT_TRUE(Shows(*window, 7));
  }
}

// A hole of a moment would become another thread's stack.
TEST(AddressWindowTest, NoAddressIsEverFree) {
  const auto window = WindowAt();
  const auto live = reinterpret_cast<uint64_t>(window->live());
  const auto all_taken = [&] {
    bool taken = true;
    for (uint64_t range = 0; range < 3; ++range)
      for (uint64_t at = 0; at < kBytes; at += kHuge) taken = taken && IsTaken(live + range * kStride + at);
    return taken;
  };
  EXPECT_TRUE(all_taken());
  std::atomic<bool> over{false};
  std::atomic<uint64_t> holes{0};
  std::thread looks([&] {
    while (!over) holes += !all_taken();
  });
  const UniqueFd files[] = {FileOf(1), FileOf(2)};
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(window->MapBeside(files[i % 2].get(), 0).ok());
    ASSERT_TRUE(window->Move().ok());
    ASSERT_TRUE(window->Clear().ok());
  }
  over = true;
  looks.join();
  EXPECT_EQ(holes, 0U);
}

// A read during a move is of the old or of the new content.
TEST(AddressWindowTest, ReadersOfOtherThreadsSeeOldOrNewBytes) {
  const auto window = WindowAt();
  const UniqueFd files[] = {FileOf(1), FileOf(2)};
  ASSERT_TRUE(window->MapBeside(files[1].get(), 0).ok());
  ASSERT_TRUE(window->Move().ok());
  std::atomic<bool> over{false};
  std::atomic<uint64_t> neither{0};
  std::vector<std::thread> readers;
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    readers.emplace_back([&, at = seed]() mutable {
      const auto* const words = reinterpret_cast<const volatile uint64_t*>(window->live());
      while (!over) {
        at = at * 1664525 + 1013904223;
        const uint64_t word = words[(at >> 8) % (kBytes / 8)];
        neither += word != 1 && word != 2;
      }
    });
  }
  for (int i = 0; i < 500; ++i) {
    EXPECT_TRUE(window->Clear().ok());
    ASSERT_TRUE(window->MapBeside(files[i % 2].get(), 0).ok());
    ASSERT_TRUE(window->Move().ok());
  }
  over = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(neither, 0U);
}

TEST(AddressWindowTest, AMoveThatFailsLeavesTheOldContent) {
  const auto window = WindowAt();
  ASSERT_TRUE(window->MapBeside(FileOf(1).get(), 0).ok());
  ASSERT_TRUE(window->Move().ok());
  ASSERT_TRUE(window->Clear().ok());
  ASSERT_TRUE(window->MapBeside(FileOf(2).get(), 0).ok());
  // The kernel moves no hole.
  ASSERT_EQ(::munmap(const_cast<std::byte*>(window->live()) + kStride, kBytes), 0);
  EXPECT_EQ(window->Move().code(), Code::kResourceExhausted);
  EXPECT_TRUE(Shows(*window, 1));
  ASSERT_TRUE(window->Clear().ok());
  ASSERT_TRUE(window->MapBeside(FileOf(3).get(), 0).ok());
  ASSERT_TRUE(window->Move().ok());
  EXPECT_TRUE(Shows(*window, 3));
}

TEST(AddressWindowTest, AWindowThatDoesNotFitIsRefused) {
  EXPECT_EQ(AddressWindow::Reserve(uint64_t{1} << 46, 0).status().code(), Code::kResourceExhausted);
  const auto window = WindowAt();
  EXPECT_EQ(window->MapBeside(-1, 0).code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace arraybridge
