// SPDX-License-Identifier: Apache-2.0
#include "daemon/memory/shared_pages/shared_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "daemon/memory/host/memfd.h"
#include "proto/boundary/explained_error.h"

namespace arraybridge::daemon {

Result<std::unique_ptr<SharedPages>> SharedPages::Create(uint64_t bytes, int protection, const char* name,
                                                         std::string_view what) {
  AB_ASSIGN_OR_RETURN(auto file, CreateMemfd(bytes, name));
  if (::fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)) != 0) {
    return ResourceExhausted("no memory for ", what, ": ", ExplainedError(errno, "the broker"))
        .Because("SYSTEM_MEMORY");
  }
  void* const base = ::mmap(nullptr, bytes, protection, MAP_SHARED, file.get(), 0);
  if (base == MAP_FAILED) {
    return ResourceExhausted("mapping ", what, ": ", ExplainedError(errno, "the broker")).Because("SYSTEM_MEMORY");
  }
  std::ignore = ::mlock(base, bytes);  // avoids page faults when memory is short
  return std::unique_ptr<SharedPages>(new SharedPages(std::move(file), base, bytes, what));
}

Result<std::unique_ptr<SharedPages>> SharedPages::Adopt(UniqueFd file, uint64_t bytes, int protection,
                                                        std::string_view what) {
  AB_RETURN_IF_ERROR(CheckStoredMemfd(file.get(), bytes, what));
  void* const base = ::mmap(nullptr, bytes, protection, MAP_SHARED, file.get(), 0);
  if (base == MAP_FAILED) {
    return ResourceExhausted("mapping ", what, ": ", ExplainedError(errno, "the broker")).Because("SYSTEM_MEMORY");
  }
  std::ignore = ::mlock(base, bytes);
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  std::unique_ptr<SharedPages> pages(new SharedPages(std::move(file), base, bytes, what));
  pages->sealed_ = (seals & F_SEAL_FUTURE_WRITE) != 0;
  return pages;
}

SharedPages::~SharedPages() { ::munmap(base_, bytes_); }

Status SharedPages::Write(uint64_t offset, const void* bytes, uint64_t count) {
  const auto wanted = static_cast<ssize_t>(count);
  if (::pwrite(file_.get(), bytes, count, static_cast<off_t>(offset)) == wanted) return Ok();
  return Internal(what_, " cannot be initialised: ", ExplainedError(errno, "the broker"));
}

Result<UniqueFd> SharedPages::Export(bool writable) const {
  if (!file_.valid() || (writable && sealed_)) return FailedPrecondition(what_, " is already mapped");
  return ReopenMemfd(file_.get(), (writable ? O_RDWR : O_RDONLY) | O_NONBLOCK);
}

Result<UniqueFd> SharedPages::ExportWritable() const {
  if (!file_.valid()) return FailedPrecondition(what_, " is already mapped");
  return ReopenMemfd(file_.get(), O_RDWR | O_NONBLOCK);
}

Status SharedPages::Seal() {
  if (sealed_) return Ok();
  const int error = AddMemfdSeals(file_.get(), F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
  if (error != 0) return Internal(what_, " cannot be sealed: ", std::strerror(error));
  // Refills holes that were punched before the seal: reading one could raise SIGBUS.
  if (::fallocate(file_.get(), 0, 0, static_cast<off_t>(bytes_)) != 0) {
    return ResourceExhausted("no memory for ", what_, ": ", ExplainedError(errno, "the broker"))
        .Because("SYSTEM_MEMORY");
  }
  sealed_ = true;
  return Ok();
}

Status SharedPages::SealForNextDaemon() {
  const int error = AddMemfdSeals(file_.get(), F_SEAL_SEAL);
  if (error != 0) return Internal(what_, " cannot be sealed: ", std::strerror(error));
  sealed_ = true;
  return Ok();
}

}  // namespace arraybridge::daemon
