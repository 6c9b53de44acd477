// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "proto/boundary/pages/huge_page_size.h"

namespace arraybridge {
namespace {

uint64_t Into(uint64_t at) { return at % HugePageBytes(); }

void* MapPlain(void* at, uint64_t size, int protection, int flags, int fd, uint64_t offset) {
  return ::mmap(at, size, protection, flags, fd, static_cast<off_t>(offset));
}

}  // namespace

void* MapFile(uint64_t size, int protection, int flags, int fd, uint64_t offset) {
  if (size < HugePageBytes() || size > UINT64_MAX / 2) return MapPlain(nullptr, size, protection, flags, fd, offset);
  // Reserves more address space than needed, maps the aligned part and releases the rest.
  const uint64_t extent = size + HugePageBytes();
  void* const reserved = MapPlain(nullptr, extent, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return MapPlain(nullptr, size, protection, flags, fd, offset);
  auto* const first = static_cast<std::byte*>(reserved);
  const uint64_t before = Into(Into(offset) - Into(reinterpret_cast<uintptr_t>(first)));
  void* const mapped = MapPlain(first + before, size, protection, flags | MAP_FIXED, fd, offset);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    ::munmap(first, extent);
    errno = error;
    return MAP_FAILED;
  }
  if (before > 0) ::munmap(first, before);
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t end = (before + size + page - 1) / page * page;
  if (end < extent) ::munmap(first + end, extent - end);
  return mapped;
}

}  // namespace arraybridge
