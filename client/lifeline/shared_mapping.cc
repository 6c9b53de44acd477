// SPDX-License-Identifier: Apache-2.0
#include "client/lifeline/shared_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "proto/boundary/explained_error.h"

namespace arraybridge {

Result<SharedMapping> SharedMapping::Map(const UniqueFd& file, uint64_t bytes, int protection, std::string_view what) {
  struct stat info {};
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (::fstat(file.get(), &info) != 0 || static_cast<uint64_t>(info.st_size) != bytes || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0) {
    return FailedPrecondition("the file that the broker sent is not ", what);
  }
  void* const base = ::mmap(nullptr, bytes, protection, MAP_SHARED, file.get(), 0);
  if (base == MAP_FAILED) return ResourceExhausted("mapping ", what, ": ", ExplainedError(errno, "this process"));
  SharedMapping mapped(base, bytes);
  if (::madvise(base, bytes, MADV_DONTFORK) == 0) return mapped;
  return FailedPrecondition(what, " cannot be kept from forked children: ", std::strerror(errno));
}

SharedMapping::~SharedMapping() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

}  // namespace arraybridge
