// SPDX-License-Identifier: Apache-2.0
// PAGEMAP_SCAN (Linux 6.7, Documentation/admin-guide/mm/pagemap.rst) finds pages by category.
#include "client/pages/page_scan.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>

#include "proto/boundary/unique_fd.h"

namespace arraybridge {
namespace {

constexpr size_t kRegionsMax = 64;

// From <linux/fs.h>, which older headers lack.
struct PageRegion {
  uint64_t start, end, categories;
};
struct PagemapScan {
  uint64_t size, flags, start, end, walk_end, regions, region_count, pages_max;
  uint64_t category_inverted, category_mask, category_any_of, return_mask;
};
static_assert(sizeof(PagemapScan) == 96);

}  // namespace

uint64_t PageBytes() {
  static const auto bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

std::optional<uint64_t> PageScan::Count(const std::byte* data, uint64_t bytes) const {
  // Opened each time: an inherited descriptor would describe the parent of a fork.
  const UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (!pagemap.valid()) return std::nullopt;
  const auto start = reinterpret_cast<uint64_t>(data);
  std::array<PageRegion, kRegionsMax> found{};
  PagemapScan scan{};
  scan.size = sizeof scan;
  scan.start = start / PageBytes() * PageBytes();
  scan.end = (start + bytes + PageBytes() - 1) / PageBytes() * PageBytes();
  scan.regions = reinterpret_cast<uint64_t>(found.data());
  scan.region_count = kRegionsMax;
  scan.pages_max = pages_max;
  scan.category_inverted = lacked;
  scan.category_mask = lacked;
  scan.category_any_of = any;
  scan.return_mask = kPresent;
  const int regions = ::ioctl(pagemap.get(), _IOWR('f', 16, PagemapScan), &scan);
  if (regions < 0 || regions == kRegionsMax) return std::nullopt;
  uint64_t pages = 0;
  for (const PageRegion& region : found) pages += (region.end - region.start) / PageBytes();
  return pages;
}

}  // namespace arraybridge
