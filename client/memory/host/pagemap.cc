// SPDX-License-Identifier: Apache-2.0
// PAGEMAP_SCAN (Linux 6.7, Documentation/admin-guide/mm/pagemap.rst) finds pages by category. A write to a private file
// mapping creates an anonymous page: present or swapped, and not a page of the file.
#include "client/memory/host/pagemap.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "proto/boundary/unique_fd.h"

namespace arraybridge {
namespace {

constexpr uint64_t kFilePage = 1u << 2;
constexpr uint64_t kPresent = 1u << 3;
constexpr uint64_t kSwapped = 1u << 4;

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

bool NeverWritten(const std::byte* data, uint64_t size) {
  // Opened each time: an inherited descriptor would describe the parent of a fork.
  const UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (!pagemap.valid()) return false;
  static const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uint64_t>(data);
  PageRegion written{};
  PagemapScan scan{};
  scan.size = sizeof scan;
  scan.start = start / page * page;
  scan.end = (start + size + page - 1) / page * page;
  scan.regions = reinterpret_cast<uint64_t>(&written);
  scan.region_count = 1;
  scan.pages_max = 1;  // one suffices
  scan.category_inverted = kFilePage;
  scan.category_mask = kFilePage;
  scan.category_any_of = kPresent | kSwapped;
  scan.return_mask = kPresent | kSwapped;
  return ::ioctl(pagemap.get(), _IOWR('f', 16, PagemapScan), &scan) == 0;
}

}  // namespace arraybridge
