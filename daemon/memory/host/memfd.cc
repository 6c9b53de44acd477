// SPDX-License-Identifier: Apache-2.0
#include "daemon/memory/host/memfd.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <tuple>

#include "proto/boundary/explained_error.h"
#include "proto/boundary/failpoint.h"
#include "proto/boundary/huge_pages.h"
#include "proto/boundary/pages/huge_page_size.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kPopulateStep = 2ull << 20;  // the kernel may schedule other threads between two steps
constexpr uint64_t kReserveStep = 64ull << 20;
constexpr std::chrono::milliseconds kSlowStep{100};  // of the failpoint populate_slowly
// Each collapse drains every processor's page lists, so steps are large; a process that is killed ends after a step.
constexpr uint64_t kCollapseStep = 16ull << 20;

Status OutOfMemory(const char* step, uint64_t size, int error) {
  return ResourceExhausted("host memory: ", step, " of ", size, " bytes failed: ", ExplainedError(error, "the broker"))
      .Because(error == EFBIG ? "FILE_SIZE_LIMIT" : "SYSTEM_MEMORY");
}

// A writable mapping that exists only while the file is populated.
class WritableMap {
 public:
  WritableMap(int fd, uint64_t size) : size_(size), address_(MapFile(size, PROT_READ | PROT_WRITE, MAP_SHARED, fd)) {}
  WritableMap(const WritableMap&) = delete;
  WritableMap& operator=(const WritableMap&) = delete;
  ~WritableMap() {
    if (ok()) ::munmap(address_, size_);
  }

  bool ok() const { return address_ != MAP_FAILED; }
  int Advise(uint64_t offset, uint64_t size, int advice) const {
    return ::madvise(static_cast<std::byte*>(address_) + offset, size, advice) == 0 ? 0 : errno;
  }

 private:
  const uint64_t size_;
  void* const address_;
};

// Makes huge pages where the kernel makes none by itself (shmem_enabled=never): MADV_COLLAPSE turns a range that has at
// least one page into a huge page and clears the missing parts. That takes a twelfth of the time of 512 small pages.
// Best effort: a range that stays a hole is populated with small pages.
void Collapse(const WritableMap& map, uint64_t offset, uint64_t size) {
  const uint64_t whole = size / HugePageBytes() * HugePageBytes();
  for (uint64_t at = 0; at < whole; at += HugePageBytes()) {
    if (map.Advise(offset + at, 1, MADV_POPULATE_WRITE) != 0) return;
  }
  if (whole > 0) std::ignore = map.Advise(offset, whole, MADV_COLLAPSE);
}

// Reserves in steps of some tens of milliseconds each.
Status Reserve(int fd, uint64_t size, const std::function<void()>& progress) {
  for (uint64_t offset = 0; offset < size; offset += kReserveStep) {
    const uint64_t step = std::min(kReserveStep, size - offset);
    if (::fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(step)) != 0) {
      return OutOfMemory("reserving", size, errno);
    }
    if (progress) progress();
  }
  return Ok();
}

}  // namespace

Result<UniqueFd> CreateMemfd(uint64_t size, const char* name) {
  if (size > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) return OutOfMemory("a file", size, EFBIG);
  if (Failpoint("memfd_create")) return OutOfMemory("a file", size, ENOMEM);
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd fd(::memfd_create(name, kFlags | MFD_NOEXEC_SEAL));
  if (!fd.valid() && errno == EINVAL) fd.reset(::memfd_create(name, kFlags));
  if (!fd.valid()) return OutOfMemory("a file", size, errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return OutOfMemory("a file", size, errno);
  // Added before any other process has the file: bytes that a borrower appended would be charged to no account.
  const int error = AddMemfdSeals(fd.get(), F_SEAL_GROW | F_SEAL_SHRINK);
  if (error != 0) return Internal("a memfd cannot be sealed: ", std::strerror(error));
  if (::fchmod(fd.get(), 0600) != 0) return Internal("fchmod of a memfd failed: ", std::strerror(errno));
  return fd;
}

Result<UniqueFd> ReopenMemfd(int fd, int flags) {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
  UniqueFd opened(Failpoint("memfd_reopen") ? -1 : ::open(path.data(), flags | O_CLOEXEC));
  if (opened.valid()) return opened;
  // The usual reason is a lack of descriptors; the caller may retry when some are free.
  return ResourceExhausted("a descriptor of an arena could not be opened: ", std::strerror(errno))
      .Because("DESCRIPTORS");
}

Status CheckStoredMemfd(int fd, uint64_t size, std::string_view what) {
  struct stat found {};
  if (::fstat(fd, &found) != 0 || static_cast<uint64_t>(found.st_size) != size || size == 0) {
    return FailedPrecondition(what, ": the stored file has ", found.st_size, " bytes instead of ", size);
  }
  const int seals = ::fcntl(fd, F_GET_SEALS);
  const bool fixed = seals >= 0 && (seals & F_SEAL_GROW) != 0 && (seals & F_SEAL_SHRINK) != 0;
  return fixed ? Ok() : FailedPrecondition(what, ": the stored file can be resized");
}

Status CheckMemfds() {
  const UniqueFd fd(::memfd_create("arraybridge", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    const char* const refused = errno == EPERM || errno == EACCES || errno == ENOSYS
                                    ? ": a seccomp filter refuses it (SystemCallFilter= of a unit, the profile of a "
                                      "container): permit memfd_create"
                                    : "";
    return FailedPrecondition("shared memory cannot be made: memfd_create: ", std::strerror(errno), refused);
  }
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd.get());
  if (UniqueFd(::open(path.data(), O_RDONLY | O_CLOEXEC)).valid()) return Ok();
  return FailedPrecondition("shared memory cannot be passed on read-only, for which /proc/self/fd is opened: ",
                            std::strerror(errno), ": mount /proc, as `mount -t proc proc /proc` does");
}

bool HasMemfdHoles(int fd, uint64_t size) {
  constexpr uint64_t kStatBlock = 512;  // the unit of st_blocks on every file system
  struct stat info {};
  return ::fstat(fd, &info) != 0 || static_cast<uint64_t>(info.st_blocks) * kStatBlock < size;
}

int AddMemfdSeals(int fd, int seals) { return ::fcntl(fd, F_ADD_SEALS, seals) == 0 ? 0 : errno; }

bool HasMemfdAlone(int keep) {
  // The kernel grants a write lease only if there is no other description of the file.
  if (::fcntl(keep, F_SETLEASE, F_WRLCK) != 0) return false;
  ::fcntl(keep, F_SETLEASE, F_UNLCK);
  return true;
}

Status PopulateMemfd(int fd, uint64_t size, MemfdPages pages, const std::function<void()>& progress) {
  // fallocate ignores the advice and makes small pages, so it is not used for huge pages; populating reports a lack of
  // memory as well.
  if (pages == MemfdPages::kSmall) AB_RETURN_IF_ERROR(Reserve(fd, size, progress));
  const WritableMap map(fd, size);
  if (!map.ok()) return OutOfMemory("mapping", size, errno);
  // A range that gets no huge page gets small pages.
  if (pages == MemfdPages::kAdvised) std::ignore = map.Advise(0, size, MADV_HUGEPAGE);
  const uint64_t step = std::max(kCollapseStep, HugePageBytes());
  for (uint64_t offset = 0; offset < size; offset += kPopulateStep) {
    if (pages == MemfdPages::kCollapsed && offset % step == 0) {
      Collapse(map, offset, std::min(step, size - offset));
    }
    const int error = map.Advise(offset, std::min(kPopulateStep, size - offset), MADV_POPULATE_WRITE);
    if (error == EINTR || error == EAGAIN) {
      offset -= kPopulateStep;  // the loop adds it again; the wrap at 0 is harmless
      continue;
    }
    // Linux before 5.14 lacks this advice. The memory that fallocate reserved is enough; only the first touch is
    // slower.
    if (error == EINVAL && pages == MemfdPages::kSmall) return Ok();
    if (error != 0) return OutOfMemory("populating", size, error);
    if (Failpoint("populate_slowly")) std::this_thread::sleep_for(kSlowStep);
    if (progress) progress();
  }
  return Ok();
}

MemfdPages MemfdHugePages() {
  if (HugePageBytes() > kHugePageBytesMax) return MemfdPages::kSmall;
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string word;
  while (file >> word) {
    if (word.front() != '[') continue;
    if (word == "[always]" || word == "[within_size]" || word == "[advise]" || word == "[force]")
      return MemfdPages::kAdvised;
    return word == "[never]" ? MemfdPages::kCollapsed : MemfdPages::kSmall;
  }
  return MemfdPages::kSmall;
}

}  // namespace arraybridge::daemon
