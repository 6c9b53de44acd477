// SPDX-License-Identifier: Apache-2.0
// Shares found and held without a call, each beside its floor: the cost of the same memory accesses without a protocol.
// The broker's and the client's parts run in one process, on the pages that they usually share.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "client/catalogue/hazard_table.h"
#include "daemon/memory/shared_pages/catalogue.h"
#include "daemon/memory/shared_pages/hazard_page.h"
#include "proto/boundary/huge_pages.h"
#include "proto/boundary/pages/huge_page_size.h"
#include "tests/bench/support.h"

namespace arraybridge::bench {
using namespace daemon;
namespace {

constexpr double kNanoseconds = 1000;  // per microsecond
constexpr int kCalls = 1000;           // between two clock readings
constexpr uint64_t kShares = 1000000;
constexpr int kCollapse = 25;                               // MADV_COLLAPSE, Linux 6.1
const std::string kName = "pipeline/stage-00000007/frame";  // 29 bytes, as names are

class Pages {
 public:
  explicit Pages(uint64_t capacity)
      : catalogue(Must(Catalogue::Create(capacity, {}))),
        page(Must(HazardPage::Create())),
        table(Must(ReadCatalogue::Map(Must(catalogue->Export()))), Must(MappedHazardPage::Map(Must(page->Export())))) {}

  void Put(std::string_view name, uint64_t share) {
    CatalogueRow row;
    row.name = name;
    row.share = share;
    row.offset = share * 4096;
    row.description = "what one array of three dimensions takes";
    if (!catalogue->Put(row)) Fail("the catalogue is full");
  }

  const std::unique_ptr<Catalogue> catalogue;
  const std::unique_ptr<HazardPage> page;
  HazardTable table;
};

// Nanoseconds per call of each work, measured in turn.
std::vector<double> EachOf(int rounds, const std::vector<std::function<void()>>& works) {
  auto times = Interleaved(rounds, 5, works);
  for (double& time : times) time *= kNanoseconds / kCalls;
  return times;
}

void HoldHot(int rounds) {
  Pages pages(1000);
  pages.Put(kName, 7);
  const SipKey key{1, 2};
  uint64_t sum = 0;
  Mutex mutex;
  uint64_t word = 0;
  // The minimum: the hash of the name, an uncontended lock, a store and a fence.
  const auto floor = [&] {
    for (int i = 0; i < kCalls; ++i) {
      const Hash128 hash = SipHash128(key, kName);
      const MutexLock lock(mutex);
      Store(word, hash.low, std::memory_order_release);
      ThreadFence(std::memory_order_seq_cst);
      sum += hash.high;
    }
  };
  const auto value = [&] {
    for (int i = 0; i < kCalls; ++i) {
      const HazardSlot hold = pages.table.Take(kName);
      sum += Load(hold.record().offset, std::memory_order_relaxed);
    }
  };
  const auto times = EachOf(rounds * 20, {floor, value});
  if (sum == 0 || pages.table.taken() == 0) Fail("nothing was held");
  Print("hold_hot", {{"floor", times[0]}, {"value", times[1]}});
}

uint64_t Next(uint64_t& random) {
  random ^= random << 13;
  random ^= random >> 7;
  random ^= random << 17;
  return random;
}

// Names are eight bytes, so that only the catalogue is read at random.
std::string_view NameOf(const uint64_t& number) { return {reinterpret_cast<const char*>(&number), sizeof number}; }

void HoldRandom(int rounds) {
  Pages pages(kShares + 1024);
  for (uint64_t i = 0; i < kShares; ++i) pages.Put(NameOf(i), i);
  const auto file = Must(pages.catalogue->Export());
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) Fail("fstat");
  const double bytes = static_cast<double>(info.st_blocks) * 512;
  Print("catalogue_bytes_1e6", {{"value", bytes / static_cast<double>(kShares)}});

  // The same memory, mapped the same way.
  const uint64_t mapped = pages.catalogue->bytes();
  void* const base = MapFile(mapped, PROT_READ, MAP_SHARED | MAP_NORESERVE, file.get());
  if (base == MAP_FAILED) Fail("mmap");
  const catalogue::Table table{static_cast<const std::byte*>(base), {kShares + 1024}};
  const auto bits = static_cast<unsigned>(table.header().index_bits);
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  const uint64_t* const index = table.index(bits);
  const SipKey key = table.header().key;
  uint64_t sum = 0;
  uint64_t random = 88172645463325252;
  uint64_t held = 0;
  const auto read = [&] {
    const uint64_t name = Next(random) % kShares;
    const Hash128 hash = SipHash128(key, NameOf(name));
    const uint64_t word = index[hash.low & mask];               // a read that the processor cannot predict
    sum += table.record((word ^ name) % kShares).state & 0xFF;  // and a read that depends on it
  };
  const auto floor = [&] {
    for (int i = 0; i < kCalls; ++i) read();
  };
  // A hold needs a fence, after which the reads of the next get begin; without it the processor overlaps several gets.
  const auto fenced = [&] {
    for (int i = 0; i < kCalls; ++i) {
      read();
      Store(held, sum, std::memory_order_release);
      ThreadFence(std::memory_order_seq_cst);
    }
  };
  uint64_t other = 123456789123;
  const auto value = [&] {
    for (int i = 0; i < kCalls; ++i) {
      const uint64_t name = Next(other) % kShares;
      const HazardSlot hold = pages.table.Take(NameOf(name));
      if (!hold) Fail("a share is not found");
      sum += Load(hold.record().offset, std::memory_order_relaxed);
    }
  };
  const auto times = EachOf(rounds * 4, {floor, value, fenced});
  // The same with huge pages, if the kernel can make them: shows the part of the TLB misses.
  const bool huge = ::madvise(base, mapped / HugePageBytes() * HugePageBytes(), kCollapse) == 0;
  const auto with_huge = huge ? EachOf(rounds * 4, {floor, value, fenced}) : std::vector<double>(3);
  ::munmap(base, mapped);
  if (sum == 0) Fail("nothing was read");
  Print("hold_random_1e6", {{"floor", times[0]},
                            {"value", times[1]},
                            {"fenced", times[2]},
                            {"huge_floor", with_huge[0]},
                            {"huge_value", with_huge[1]},
                            {"huge_fenced", with_huge[2]}});
}

}  // namespace
}  // namespace arraybridge::bench

int main(int argc, char** argv) {
  using namespace arraybridge::bench;
  const Arguments arguments(argc, argv);
  const int rounds = arguments.Number("rounds", 15);
  HoldHot(rounds);
  HoldRandom(rounds);
}
