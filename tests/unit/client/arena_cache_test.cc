// The cache of arenas mapped for reading: which ones stay mapped.
#include "client/arenas/arena_cache.h"

#include <gmock/gmock.h>

#include <set>

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

}  // namespace
}  // namespace arraybridge
