// SPDX-License-Identifier: Apache-2.0
#include "client/arenas/private_ranges.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "client/arenas/arena_cache.h"
#include "client/memory/host/host_mapper.h"
#include "client/memory/host/pagemap.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kArraySize = 512 * kPage;

class PrivateRangesTest : public testing::Test {
 protected:
  void SetUp() override {
    UniqueFd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(file.get(), 2 * kArraySize), 0);
    writer_ =
        static_cast<std::byte*>(::mmap(nullptr, 2 * kArraySize, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
    ASSERT_NE(writer_, MAP_FAILED);
    std::memset(writer_, 7, 2 * kArraySize);
    handle_.descriptor = std::move(file);
    handle_.arena = 1;
    handle_.size = handle_.arena_size = 2 * kArraySize;
    const auto probe = Map(0);
    static_cast<void>(Sum(*probe));
    if (!NeverWritten(probe->data(), kArraySize)) GTEST_SKIP() << "this kernel has no PAGEMAP_SCAN (Linux 6.7)";
  }
  void TearDown() override { ::munmap(writer_, 2 * kArraySize); }

  std::unique_ptr<PrivateMapping> Map(uint64_t offset) {
    auto mapping = MakeHostMapper()->MapPrivate(handle_, offset, kArraySize);
    EXPECT_TRUE(mapping.ok()) << mapping.status().ToString();
    return std::make_unique<PrivateMapping>(ranges_, offset, *std::move(mapping));
  }
  static int64_t Sum(const PrivateMapping& mapping) {
    int64_t sum = 0;
    for (uint64_t at = 0; at < mapping.size(); at += kPage) sum += static_cast<int64_t>(mapping.data()[at]);
    return sum;
  }
  static int64_t Faults() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
  }

  Handle handle_;
  std::byte* writer_ = nullptr;
  PrivateRanges ranges_;
};

TEST_F(PrivateRangesTest, ACleanRangeComesBackWithItsPages) {
  auto range = Map(0);
  const std::byte* const data = range->data();
  EXPECT_EQ(Sum(*range), 512 * 7);
  ranges_.Release(std::move(range));
  range = ranges_.Take(0, kArraySize);
  ASSERT_NE(range, nullptr);
  EXPECT_EQ(range->data(), data);
  const int64_t before = Faults();
  EXPECT_EQ(Sum(*range), 512 * 7);
  EXPECT_LT(Faults() - before, 8);
  EXPECT_EQ(ranges_.Take(0, kArraySize), nullptr) << "one reader at a time";
}

TEST_F(PrivateRangesTest, AWrittenRangeNeverComesBack) {
  for (const uint64_t at : {uint64_t{0}, kArraySize / 2, kArraySize - 1}) {
    auto range = Map(256);
    static_cast<void>(Sum(*range));
    range->data()[at] = std::byte{9};
    ranges_.Release(std::move(range));
    EXPECT_EQ(ranges_.Take(256, kArraySize), nullptr) << "written at " << at;
  }
}

TEST_F(PrivateRangesTest, AKeptRangeShowsWhatTheArenaHoldsNow) {
  auto range = Map(kPage);
  EXPECT_EQ(Sum(*range), 512 * 7);
  ranges_.Release(std::move(range));
  std::memset(writer_ + kPage, 8, kArraySize);
  range = ranges_.Take(kPage, kArraySize);
  ASSERT_NE(range, nullptr);
  EXPECT_EQ(Sum(*range), 512 * 8);
}

TEST_F(PrivateRangesTest, IsKnownByItsPlaceAndSize) {
  ranges_.Release(Map(0));
  EXPECT_EQ(ranges_.Take(256, kArraySize), nullptr);
  EXPECT_EQ(ranges_.Take(0, kArraySize - 1), nullptr);
  EXPECT_NE(ranges_.Take(0, kArraySize), nullptr);
}

TEST_F(PrivateRangesTest, KeepsTheLatestFew) {
  for (uint64_t i = 0; i < 9; ++i) ranges_.Release(Map(i * kPage));
  EXPECT_EQ(ranges_.Take(0, kArraySize), nullptr);
  for (uint64_t i = 1; i < 9; ++i) EXPECT_NE(ranges_.Take(i * kPage, kArraySize), nullptr) << i;
}

TEST_F(PrivateRangesTest, AMappingIsFoundAsLongAsItExists) {
  const auto mapped = std::make_shared<MappedRanges>();
  const auto arena = std::make_shared<ReadArena>();
  ranges_.FindIn(mapped, arena);
  const auto offset_of = [&](const std::byte* data, uint64_t bytes) -> std::optional<uint64_t> {
    const auto place = mapped->Find(data, bytes);
    if (!place) return std::nullopt;
    EXPECT_EQ(place->arena, arena);
    EXPECT_TRUE(place->own);
    return place->offset;
  };
  auto range = Map(256);
  const std::byte* const data = range->data();
  EXPECT_EQ(offset_of(data, kArraySize), 256u);
  EXPECT_EQ(offset_of(data + kArraySize - 1, 1), 256u + kArraySize - 1);
  EXPECT_EQ(offset_of(data, kArraySize + 1), std::nullopt);
  EXPECT_EQ(offset_of(data - 1, 1), std::nullopt);
  EXPECT_EQ(offset_of(data + kArraySize, 1), std::nullopt);
  const auto other = Map(kPage);
  EXPECT_EQ(offset_of(other->data() + 5, 3), kPage + 5);
  EXPECT_EQ(offset_of(data + 5, 3), 256u + 5);
  range->data()[0] = std::byte{9};
  ranges_.Release(std::move(range));
  EXPECT_EQ(offset_of(data, 1), std::nullopt) << "its address may be another's now";
}

TEST(MappedRangesTest, WhatLiesInAnArenaThatHasGoneIsNotFound) {
  MappedRanges mapped;
  auto arena = std::make_shared<ReadArena>();
  std::byte bytes[4]{};
  mapped.Add(bytes, {sizeof bytes, arena, 0, false});
  EXPECT_TRUE(mapped.Find(bytes, 4).has_value());
  arena.reset();
  EXPECT_FALSE(mapped.Find(bytes, 4).has_value());
  mapped.Remove(bytes);
  EXPECT_FALSE(mapped.Find(bytes, 4).has_value());
}

TEST(AddressSpanTest, MayContainWhatLiesBetweenItsLowestAndItsHighestAddress) {
  AddressSpan span;
  std::byte bytes[12]{};
  EXPECT_FALSE(span.MayContain(nullptr));
  EXPECT_FALSE(span.MayContain(bytes + 4));
  span.Note(bytes + 4, 2);
  for (size_t at = 0; at < sizeof bytes; ++at) EXPECT_EQ(span.MayContain(bytes + at), at == 4 || at == 5) << at;
  span.Note(bytes + 8, 1);
  span.Note(bytes + 2, 1);
  for (size_t at = 0; at < sizeof bytes; ++at) EXPECT_EQ(span.MayContain(bytes + at), at >= 2 && at <= 8) << at;
}

}  // namespace
}  // namespace arraybridge
