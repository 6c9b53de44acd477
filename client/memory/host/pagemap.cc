// SPDX-License-Identifier: Apache-2.0
// A write to a private file mapping creates an anonymous page: present or swapped, and not a page of the file.
#include "client/memory/host/pagemap.h"

#include "client/pages/page_scan.h"

namespace arraybridge {

bool NeverWritten(const std::byte* data, uint64_t size) {
  const PageScan written{
      .lacked = PageScan::kFile, .any = PageScan::kPresent | PageScan::kSwapped, .pages_max = 1};  // one suffices
  return written.Count(data, size) == 0;
}

}  // namespace arraybridge
