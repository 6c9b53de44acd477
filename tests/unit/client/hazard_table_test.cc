// SPDX-License-Identifier: Apache-2.0
// The client's side of hazard slots, with the broker's catalogue and page in the same process.
#include "client/catalogue/hazard_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "daemon/memory/shared_pages/catalogue.h"
#include "daemon/memory/shared_pages/hazard_page.h"

namespace arraybridge::daemon {
namespace {

class HazardTableTest : public testing::Test {
 protected:
  HazardTableTest() : catalogue_(*Catalogue::Create(2000, {})), page_(*HazardPage::Create()), table_(MakeTable()) {}

  std::unique_ptr<HazardTable> MakeTable() const {
    auto read = ReadCatalogue::Map(*catalogue_->Export());
    auto written = MappedHazardPage::Map(*page_->Export());
    EXPECT_TRUE(read.ok() && written.ok());
    return std::make_unique<HazardTable>(*std::move(read), *std::move(written));
  }
  CatalogueEntry Put(std::string_view name, uint64_t share = 1) {
    return *catalogue_->Put({.name = name, .share = share});
  }

  std::unique_ptr<Catalogue> catalogue_;
  std::unique_ptr<HazardPage> page_;
  std::unique_ptr<HazardTable> table_;
};

TEST_F(HazardTableTest, AHoldIsSeenUntilItsLastUserEnds) {
  const auto entry = Put("a", 5);
  HazardSlot one = table_->Take("a");
  ASSERT_TRUE(one);
  EXPECT_EQ(catalogue::Read(one.record()).share, 5u);
  EXPECT_TRUE(page_->Has(entry.hazard_word()));
  HazardSlot two = table_->Take("a");
  EXPECT_EQ(page_->count(), 1u) << "one per share and process";
  EXPECT_FALSE(one.End());
  EXPECT_TRUE(page_->Has(entry.hazard_word()));
  EXPECT_FALSE(two.End());
  EXPECT_EQ(page_->count(), 0u);
  EXPECT_FALSE(two.End()) << "once";
  EXPECT_EQ(table_->taken(), 2u);
}

TEST_F(HazardTableTest, WhatIsWithdrawnIsNotTakenAndItsLastUserHearsOfIt) {
  const auto entry = Put("a");
  HazardSlot one = table_->Take("a");
  HazardSlot two = table_->Take("a");
  catalogue_->Retire(entry);
  EXPECT_FALSE(table_->Take("a"));
  EXPECT_FALSE(one.End());
  EXPECT_TRUE(page_->Has(entry.hazard_word()));
  EXPECT_TRUE(two.End()) << "the broker may be told";
  EXPECT_FALSE(page_->Has(entry.hazard_word()));
}

TEST_F(HazardTableTest, ANewGenerationHasAHoldOfItsOwn) {
  const auto first = Put("a", 1);
  HazardSlot old = table_->Take("a");
  const auto second = Put("a", 2);
  catalogue_->Retire(first);
  HazardSlot fresh = table_->Take("a");
  EXPECT_EQ(catalogue::Read(old.record()).share, 1u);
  EXPECT_EQ(catalogue::Read(fresh.record()).share, 2u);
  EXPECT_TRUE(page_->Has(first.hazard_word()) && page_->Has(second.hazard_word()));
}

TEST_F(HazardTableTest, AFullPageTakesNoMore) {
  std::vector<HazardSlot> held;
  for (uint32_t i = 0; i < hazard::kWords; ++i) {
    Put(std::to_string(i), i);
    held.push_back(table_->Take(std::to_string(i)));
    ASSERT_TRUE(held.back());
  }
  Put("more", 1);
  EXPECT_FALSE(table_->Take("more"));
  EXPECT_TRUE(table_->Take("7")) << "a held slot takes another user";
  for (uint32_t i = 0; i < hazard::kWords; ++i) EXPECT_EQ(catalogue::Read(held[i].record()).share, i);
  held[9].End();
  EXPECT_TRUE(table_->Take("more"));
}

TEST_F(HazardTableTest, HoldsThatWereUsedAreUsedAgain) {
  for (int i = 0; i < 1500; ++i) Put(std::to_string(i), static_cast<uint64_t>(i));
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 1500; ++i) {
      HazardSlot hold = table_->Take(std::to_string(i));
      ASSERT_TRUE(hold);
      ASSERT_EQ(catalogue::Read(hold.record()).share, static_cast<uint64_t>(i));
    }
  }
  EXPECT_EQ(page_->count(), 0u);
  const auto file = page_->Export();
  const auto mapped = MappedHazardPage::Map(*file);
  EXPECT_EQ((*mapped)->page().high, 1u) << "the broker looks at no more than was needed";
}

// Threads take and end slots of the same few shares, and meet while one claims or clears a slot that another one wants.
TEST_F(HazardTableTest, ThreadsThatTakeTheSameShareAllHoldIt) {
  constexpr uint64_t kTakes = 50000;
  constexpr int kThreads = 4;
  const CatalogueEntry entries[] = {Put("a", 0), Put("b", 1)};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (uint64_t i = 0; i < kTakes; ++i) {
        const uint64_t share = i >> 3 & 1;
        HazardSlot hold = table_->Take(share == 0 ? "a" : "b");
        ASSERT_TRUE(hold);
        ASSERT_EQ(catalogue::Read(hold.record()).share, share);
        ASSERT_TRUE(page_->Has(entries[share].hazard_word()));
        ASSERT_FALSE(hold.End()) << "it was not withdrawn";
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(page_->count(), 0u);
  EXPECT_EQ(table_->taken(), kTakes * kThreads);
  const auto file = page_->Export();
  const auto mapped = MappedHazardPage::Map(*file);
  EXPECT_LE((*mapped)->page().high, uint32_t{2 * kThreads}) << "at most one for each thread and share";
}

TEST_F(HazardTableTest, AForkedChildDoesNotHaveThePage) {
  const auto file = page_->Export();
  const auto mapped = MappedHazardPage::Map(*file);
  ASSERT_TRUE(mapped.ok());
  hazard::Page* const page = &(*mapped)->page();
  const pid_t child = ::fork();
  if (child == 0) {
    unsigned char there = 0;
    ::_exit(::mincore(page, sizeof *page, &there) == 0 ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(HazardTableTest, WhatIsNoCatalogueIsRefused) {
  const auto refused = [](const UniqueFd& file) { return ReadCatalogue::Map(file).status().code(); };
  EXPECT_EQ(refused(*page_->Export()), Code::kFailedPrecondition);
  EXPECT_EQ(refused(UniqueFd()), Code::kFailedPrecondition);
  const UniqueFd open(::memfd_create("x", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  EXPECT_EQ(refused(open), Code::kFailedPrecondition) << "it could shrink";
  catalogue::Header header{};
  header.magic = catalogue::kMagic;
  header.version = catalogue::kVersion;
  header.record_bytes = sizeof(catalogue::Record);
  header.records_offset = catalogue::kHeaderBytes;
  header.capacity = 1000000;  // larger than the file
  ASSERT_EQ(::write(open.get(), &header, sizeof header), static_cast<ssize_t>(sizeof header));
  ASSERT_EQ(::fcntl(open.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(refused(open), Code::kFailedPrecondition);
  EXPECT_EQ(MappedHazardPage::Map(*catalogue_->Export()).status().code(), Code::kFailedPrecondition);
}

// A broker withdraws and republishes shares continuously, while threads take and end slots. The test checks the record
// of each slot against the name it was taken by.
TEST_F(HazardTableTest, ThreadsHoldWhileTheBrokerReplaces) {
  constexpr int kNames = 4;
  constexpr int kReaders = 3;
  std::vector<CatalogueEntry> entries;
  for (uint64_t i = 0; i < kNames; ++i) entries.push_back(Put(std::to_string(i), i));
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> taken{0};
  std::vector<std::thread> readers;
  readers.reserve(kReaders);
  for (int r = 0; r < kReaders; ++r) {
    readers.emplace_back([&, r] {
      std::vector<HazardSlot> held;
      for (uint64_t i = static_cast<uint64_t>(r); !stop.load(); ++i) {
        const uint64_t name = i % kNames;
        HazardSlot hold = table_->Take(std::to_string(name));
        if (!hold) continue;
        ++taken;
        // A share's id modulo kNames is the number of its name, in every generation.
        ASSERT_EQ(catalogue::Read(hold.record()).share % kNames, name);
        held.push_back(std::move(hold));
        if (held.size() > 3) held.erase(held.begin());
      }
    });
  }
  std::vector<CatalogueEntry> waiting;
  uint64_t share = kNames;
  for (uint64_t step = 0; step < 30000 || taken.load() < 1000; ++step, ++share) {
    const uint64_t name = share % kNames;
    const auto fresh = catalogue_->Put({.name = std::to_string(name), .share = share});
    if (fresh) {
      catalogue_->Retire(entries[name]);
      waiting.push_back(entries[name]);
      entries[name] = *fresh;
    }
    std::erase_if(waiting, [&](const CatalogueEntry& entry) {
      if (page_->Has(entry.hazard_word())) return false;
      catalogue_->Free(entry);
      return true;
    });
  }
  stop = true;
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(page_->count(), 0u);
}

}  // namespace
}  // namespace arraybridge::daemon
