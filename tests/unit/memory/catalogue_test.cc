// SPDX-License-Identifier: Apache-2.0
// The broker's side of a catalogue: clients find the shares that were put, also after removals and new puts.
#include "daemon/memory/shared_pages/catalogue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "daemon/memory/shared_pages/hazard_page.h"

namespace arraybridge::daemon {
namespace {

constexpr std::array<uint8_t, 16> kBroker{1, 2, 3};

// The view of a client.
class Reader {
 public:
  explicit Reader(const Catalogue& catalogue, uint64_t capacity) : bytes_(catalogue.bytes()) {
    auto file = catalogue.Export();
    EXPECT_TRUE(file.ok());
    base_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file->get(), 0);
    EXPECT_NE(base_, MAP_FAILED);
    table_ = {static_cast<const std::byte*>(base_), {capacity}};
  }
  ~Reader() { ::munmap(base_, bytes_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  const catalogue::Table& table() const { return table_; }
  std::optional<catalogue::Found> Find(std::string_view name) const {
    const auto found = catalogue::Find(table_, SipHash128(table_.header().key, name));
    return found ? std::optional(found) : std::nullopt;
  }
  // 0 if the name is not found.
  uint64_t ShareOf(std::string_view name) const {
    const auto found = Find(name);
    return found ? catalogue::Read(table_.record(found->slot)).share : 0;
  }

 private:
  const uint64_t bytes_;
  void* base_;
  catalogue::Table table_;
};

class CatalogueTest : public testing::Test {
 protected:
  explicit CatalogueTest(uint64_t capacity = 1000)
      : capacity_(capacity), catalogue_(*Catalogue::Create(capacity, kBroker)) {}

  std::optional<CatalogueEntry> Put(std::string_view name, uint64_t share) {
    return catalogue_->Put({.name = name, .share = share});
  }
  void Drop(const CatalogueEntry& entry) {
    catalogue_->Retire(entry);
    catalogue_->Free(entry);
  }

  const uint64_t capacity_;
  std::unique_ptr<Catalogue> catalogue_;
};

TEST_F(CatalogueTest, ASharesValuesAreFoundAsTheyWerePut) {
  const Reader reader(*catalogue_, capacity_);
  EXPECT_EQ(reader.table().header().magic, catalogue::kMagic);
  EXPECT_EQ(reader.table().header().broker_id, kBroker);
  const std::string description(catalogue::kDescriptionBytesMax, 'd');
  const auto entry = catalogue_->Put({.name = "a",
                                      .arena = (uint64_t{1} << 48) - 1,
                                      .offset = 256,
                                      .size = 77,
                                      .share = 5,
                                      .generation = 6,
                                      .enforced = false,
                                      .unnamed = true,
                                      .description = description});
  ASSERT_TRUE(entry);
  const auto found = reader.Find("a");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->slot, entry->slot);
  EXPECT_EQ(catalogue::GenerationOf(found->state), entry->generation);
  auto facts = catalogue::Read(reader.table().record(found->slot));
  EXPECT_EQ(std::tie(facts.arena, facts.offset, facts.size, facts.share, facts.generation),
            std::make_tuple((uint64_t{1} << 48) - 1, 256u, 77u, 5u, 6u));
  EXPECT_TRUE(facts.unnamed);
  EXPECT_FALSE(facts.enforced);
  EXPECT_EQ(facts.text(), description);
  catalogue_->SetEnforced(*entry);
  EXPECT_TRUE(catalogue::Read(reader.table().record(found->slot)).enforced);
  EXPECT_FALSE(reader.Find("b"));
}

TEST_F(CatalogueTest, ALongDescriptionIsOmitted) {
  const Reader reader(*catalogue_, capacity_);
  const std::string description(catalogue::kDescriptionBytesMax + 1, 'd');
  ASSERT_TRUE(catalogue_->Put({.name = "a", .description = description}));
  EXPECT_FALSE(catalogue::Read(reader.table().record(reader.Find("a")->slot)).described);
}

TEST_F(CatalogueTest, ANameFindsTheLastSharePut) {
  const Reader reader(*catalogue_, capacity_);
  const auto first = Put("a", 1);
  const auto second = Put("a", 2);
  EXPECT_EQ(reader.ShareOf("a"), 2u);
  Drop(*first);
  EXPECT_EQ(reader.ShareOf("a"), 2u) << "retiring the previous share does not affect it";
  Drop(*second);
  EXPECT_EQ(reader.ShareOf("a"), 0u);
}

TEST_F(CatalogueTest, ARetiredRecordStaysUntilItIsFree) {
  const Reader reader(*catalogue_, capacity_);
  const auto entry = Put("a", 1);
  catalogue_->Retire(*entry);
  EXPECT_FALSE(reader.Find("a"));
  for (uint64_t i = 0; i < capacity_ - 1; ++i) ASSERT_TRUE(Put(std::to_string(i), 100 + i));
  EXPECT_FALSE(Put("one too many", 9));
  EXPECT_EQ(catalogue::Read(reader.table().record(entry->slot)).share, 1u)
      << "a client that holds it can still read it";
  catalogue_->Free(*entry);
  const auto reused = Put("b", 2);
  ASSERT_TRUE(reused);
  EXPECT_EQ(reused->slot, entry->slot);
  EXPECT_GT(reused->generation, entry->generation);
  EXPECT_NE(reused->hazard_word(), entry->hazard_word());
}

// If the generation started again, a hold on the first share would look like a hold on the last one.
TEST_F(CatalogueTest, ASlotWithoutGenerationsIsNotReused) {
  const auto entry = Put("a", 1);
  Drop(*entry);
  // Simulates 2^38 - 2 uses; only the broker's own mapping can write this.
  std::ifstream maps("/proc/self/maps");
  uint64_t* state = nullptr;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("rw-s") == std::string::npos || line.find("memfd:arraybridge-catalogue") == std::string::npos)
      continue;
    const auto base = std::stoull(line, nullptr, 16);
    state = reinterpret_cast<uint64_t*>(base + catalogue::kHeaderBytes + entry->slot * sizeof(catalogue::Record));
  }
  ASSERT_NE(state, nullptr);
  ASSERT_EQ(*state, catalogue::StateOf(1, catalogue::RecordState::kDead));
  *state = catalogue::StateOf(catalogue::kGenerationMax - 1, catalogue::RecordState::kDead);
  const auto last = Put("a", 2);
  ASSERT_EQ(last->slot, entry->slot);
  EXPECT_EQ(last->generation, catalogue::kGenerationMax);
  EXPECT_EQ(last->hazard_word() >> catalogue::kGenerationBits, last->slot + 1u)
      << "the generation does not overflow into the slot";
  Drop(*last);
  EXPECT_NE(Put("a", 3)->slot, entry->slot);
}

TEST_F(CatalogueTest, NoOtherMappingCanWriteIt) {
  const auto file = catalogue_->Export();
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0), MAP_FAILED);
  const std::string path = "/proc/self/fd/" + std::to_string(file->get());
  const UniqueFd writable(::open(path.c_str(), O_RDWR));  // opened by the same user
  ASSERT_TRUE(writable.valid());
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writable.get(), 0), MAP_FAILED);
  EXPECT_LT(::pwrite(writable.get(), "x", 1, 0), 0);
  EXPECT_NE(::ftruncate(writable.get(), 0), 0);
}

TEST_F(CatalogueTest, AClientThatMapsItSeesThatItIsClosed) {
  const Reader reader(*catalogue_, capacity_);
  EXPECT_EQ(reader.table().header().closed, 0u);
  catalogue_.reset();
  EXPECT_NE(reader.table().header().closed, 0u);
}

class LargeCatalogueTest : public CatalogueTest {
 protected:
  LargeCatalogueTest() : CatalogueTest(20000) {}
};

// Grows through many indexes and compares with a model.
TEST_F(LargeCatalogueTest, LookupsMatchAModelAfterManyPutsAndRemovals) {
  const Reader reader(*catalogue_, capacity_);
  std::map<std::string, std::pair<CatalogueEntry, uint64_t>> model;
  std::mt19937_64 random(7);
  for (uint64_t step = 1; step <= 100000; ++step) {
    const std::string name = std::to_string(random() % 15000);
    const auto old = model.find(name);
    if (random() % 3 == 0 && old != model.end()) {
      Drop(old->second.first);
      model.erase(old);
      EXPECT_EQ(reader.ShareOf(name), 0u);
      continue;
    }
    const auto entry = Put(name, step);
    ASSERT_TRUE(entry) << step;
    if (old != model.end()) Drop(old->second.first);
    model[name] = {*entry, step};
    ASSERT_EQ(reader.ShareOf(name), step);
  }
  for (int i = 0; i < 15000; ++i) {
    const auto known = model.find(std::to_string(i));
    ASSERT_EQ(reader.ShareOf(std::to_string(i)), known == model.end() ? 0 : known->second.second);
  }
  EXPECT_EQ(catalogue_->live(), model.size());
}

TEST_F(LargeCatalogueTest, AddingAndRemovingNamesUsesUpNoSpace) {
  const Reader reader(*catalogue_, capacity_);
  for (uint64_t i = 1; i <= 200000; ++i) {
    const auto entry = Put(std::to_string(i), i);
    ASSERT_TRUE(entry) << i;
    ASSERT_EQ(reader.ShareOf(std::to_string(i)), i);
    Drop(*entry);
  }
  EXPECT_EQ(reader.table().header().index_bits, catalogue::kIndexBitsMin) << "removed names occupy no place";
}

TEST(HazardPageTest, OnlyItsSessionCanWriteIt) {
  const auto page = *HazardPage::Create();
  const auto file = page->Export();
  ASSERT_TRUE(file.ok());
  void* const base = ::mmap(nullptr, sizeof(hazard::Page), PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0);
  ASSERT_NE(base, MAP_FAILED);
  auto& own = *static_cast<hazard::Page*>(base);
  EXPECT_EQ(own.version, hazard::kVersion);
  ASSERT_TRUE(page->Seal().ok());
  EXPECT_TRUE(page->Seal().ok());
  EXPECT_FALSE(page->Export().ok());
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0), MAP_FAILED);
  EXPECT_NE(::fallocate(file->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  own.words[3] = 77;
  EXPECT_FALSE(page->Has(77)) << "the word is above the range in use";
  own.high = 4;
  EXPECT_TRUE(page->Has(77));
  EXPECT_EQ(page->count(), 1u);
  ::munmap(base, sizeof(hazard::Page));
}

TEST(HazardPageTest, ItsWordsAreOnlyCompared) {
  const auto page = *HazardPage::Create();
  const auto file = page->Export();
  auto& own = *static_cast<hazard::Page*>(
      ::mmap(nullptr, sizeof(hazard::Page), PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0));
  own.high = 0xFFFFFFFF;
  own.words.fill(~uint64_t{0});
  EXPECT_EQ(page->count(), hazard::kWords);
  EXPECT_TRUE(page->Has(~uint64_t{0}));
  EXPECT_FALSE(page->Has(1));
  ::munmap(&own, sizeof own);
}

}  // namespace
}  // namespace arraybridge::daemon
