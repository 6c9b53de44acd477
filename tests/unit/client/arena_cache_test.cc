// SPDX-License-Identifier: Apache-2.0
// The cache of arenas mapped for reading: which ones stay mapped.
#include "client/arenas/arena_cache.h"

#include <gmock/gmock.h>

#include <array>
#include <set>

#include "tests/unit/client/static_mapping.h"

namespace arraybridge {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Instant = ArenaCache::Instant;

// Records that it has been unmapped.
class Told final : public Mapping {
 public:
  Told(uint64_t arena, std::multiset<uint64_t>& mapped) : arena_(arena), mapped_(mapped) { mapped_.insert(arena_); }
  ~Told() override { mapped_.erase(mapped_.find(arena_)); }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;
  std::byte* data() const override { return nullptr; }
  uint64_t size() const override { return 0; }
  Status CopyFrom(const View&, uint64_t) override { return Unimplemented("no bytes"); }
  std::shared_ptr<DeviceEvent> Now() override { return nullptr; }
  void Detach() noexcept override {}

 private:
  const uint64_t arena_;
  std::multiset<uint64_t>& mapped_;
};

class ArenaCacheTest : public testing::Test {
 protected:
  std::shared_ptr<ReadArena> Add(ArenaCache& cache, uint64_t arena, uint64_t bytes) {
    auto fresh = std::make_shared<ReadArena>();
    fresh->handle.arena = arena;
    fresh->handle.generation = 1;
    fresh->handle.arena_size = bytes;
    fresh->shared = std::make_unique<Told>(arena, mapped_);
    return cache.Add(fresh);
  }
  // No arena is unmapped for its age.
  static constexpr Instant kLongAgo{};

  std::multiset<uint64_t> mapped_;
};

TEST_F(ArenaCacheTest, OfMoreThanItsNumberTheLeastRecentlyUsedGoes) {
  ArenaCache cache({.arenas = 2, .bytes = UINT64_MAX});
  for (const uint64_t arena : {1, 2, 3}) Add(cache, arena, 100);
  EXPECT_TRUE(cache.full());
  cache.Find(1, 1);
  EXPECT_THAT(cache.TakeIdle(kLongAgo), ElementsAre(2));
  EXPECT_THAT(mapped_, ElementsAre(1, 3));
  EXPECT_FALSE(cache.full());
  EXPECT_THAT(cache.TakeIdle(kLongAgo), IsEmpty());
}

TEST_F(ArenaCacheTest, OfMoreThanItsBytesTheLeastRecentlyUsedGo) {
  ArenaCache cache({.arenas = 100, .bytes = 1000});
  for (const uint64_t arena : {1, 2, 3, 4}) Add(cache, arena, 400);
  Add(cache, 1, 400);  // a redundant mapping, as another thread may make it
  cache.Find(2);
  EXPECT_THAT(cache.TakeIdle(kLongAgo), ElementsAre(3, 4));
  EXPECT_THAT(mapped_, ElementsAre(1, 2));
  Add(cache, 5, 2000);
  EXPECT_THAT(cache.TakeIdle(kLongAgo), ElementsAre(1, 2, 5)) << "an arena above the limit does not stay";
  EXPECT_FALSE(cache.full());
}

TEST_F(ArenaCacheTest, WhatArraysUseStays) {
  ArenaCache cache({.arenas = 0, .bytes = 0});
  auto first = Add(cache, 1, 100);
  Add(cache, 2, 100);
  const auto third = Add(cache, 3, 100);
  EXPECT_THAT(cache.TakeIdle(Instant::max()), ElementsAre(2));
  first.reset();
  EXPECT_THAT(cache.TakeIdle(kLongAgo), ElementsAre(1));
  EXPECT_TRUE(cache.full());
  EXPECT_THAT(mapped_, ElementsAre(3));
  EXPECT_EQ(cache.Find(3, 1), third);
}

TEST_F(ArenaCacheTest, FindsTheArenaInWhichBytesLie) {
  ArenaCache cache({.arenas = 2, .bytes = UINT64_MAX});
  const auto fresh = std::make_shared<ReadArena>();
  fresh->handle.arena = 7;
  fresh->handle.kind = HandleKind::kMemfd;
  fresh->handle.arena_size = StaticMapping::kBytes;
  fresh->shared = std::make_unique<StaticMapping>();
  const std::byte* const start = fresh->shared->data();
  EXPECT_FALSE(cache.FindAt(start, 1).has_value());
  const auto arena = cache.Add(fresh);
  const auto place = cache.FindAt(start + 512, 256);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->arena, arena);
  EXPECT_EQ(place->offset, 512u);
  EXPECT_FALSE(place->own);
  EXPECT_TRUE(cache.FindAt(start + StaticMapping::kBytes - 1, 1).has_value());
  EXPECT_FALSE(cache.FindAt(start + StaticMapping::kBytes - 1, 2).has_value()) << "beyond it";
  EXPECT_FALSE(cache.FindAt(start - 1, 1).has_value()) << "before it";
}

TEST_F(ArenaCacheTest, AnotherArenaCanBeMappedWhereOneWasUnmapped) {
  ArenaCache cache({.arenas = 0, .bytes = UINT64_MAX});
  std::array<std::byte, 1024> memory{};
  const auto add = [&](uint64_t id, uint64_t at, uint64_t size) {
    const auto arena = std::make_shared<ReadArena>();
    arena->handle.arena = id;
    arena->handle.kind = HandleKind::kMemfd;
    arena->handle.arena_size = size;
    arena->shared = std::make_unique<MappingAt>(&memory[at], size);
    return cache.Add(arena);
  };
  add(1, 512, 512);
  EXPECT_EQ(cache.FindAt(&memory[600], 1)->arena->handle.arena, 1u);
  EXPECT_THAT(cache.TakeIdle(kLongAgo), ElementsAre(1));
  EXPECT_FALSE(cache.FindAt(&memory[600], 1).has_value());
  const auto next = add(2, 0, 1024);
  EXPECT_EQ(cache.FindAt(&memory[600], 424)->arena, next);
}

TEST(LeasedRangesTest, FindsALeaseWhoseRangeContainsTheBytes) {
  LeasedRanges leases;
  leases.Add(0, 1024, 7);
  leases.Add(256, 256, 8);
  leases.Add(2048, 256, 9);
  const auto found = [&](uint64_t offset, uint64_t bytes) {
    const auto leased = leases.Find(offset, bytes);
    return leased ? leased->lease : 0;
  };
  EXPECT_EQ(found(256, 256), 8u);
  EXPECT_EQ(found(256, 257), 7u) << "a share that begins earlier and ends later";
  EXPECT_EQ(found(512, 512), 7u);
  EXPECT_EQ(found(512, 513), 0u);
  EXPECT_EQ(found(1024, 1), 0u);
  EXPECT_EQ(found(2048, UINT64_MAX), 0u);
  leases.Remove(256, 8);
  leases.Remove(256, 8);
  EXPECT_EQ(found(256, 256), 7u);
  leases.Add(0, 1024, 10);
  leases.Remove(0, 7);
  EXPECT_EQ(found(0, 1024), 10u) << "another lease of the same share";
}

}  // namespace
}  // namespace arraybridge
