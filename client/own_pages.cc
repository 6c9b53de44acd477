#include "client/own_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace arraybridge {

Result<void*> MapOwnPages(const UniqueFd& file, uint64_t bytes, int protection, std::string_view what) {
  struct stat info {};
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (::fstat(file.get(), &info) != 0 || static_cast<uint64_t>(info.st_size) != bytes || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0) {
    return FailedPrecondition("what came as ", what, " is none");
  }
  void* const base = ::mmap(nullptr, bytes, protection, MAP_SHARED, file.get(), 0);
  if (base == MAP_FAILED) return ResourceExhausted("mapping ", what, ": ", std::strerror(errno));
  if (::madvise(base, bytes, MADV_DONTFORK) == 0) return base;
  const int error = errno;
  ::munmap(base, bytes);
  return FailedPrecondition(what, " cannot be kept from forked children: ", std::strerror(error));
}

}  // namespace arraybridge
