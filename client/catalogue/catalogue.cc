// SPDX-License-Identifier: Apache-2.0
#include "client/catalogue/catalogue.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "proto/boundary/huge_pages.h"

namespace arraybridge {
namespace {

// The capacity, if the file is large enough for it and sealed against shrinking.
Result<uint64_t> CheckFile(int file) {
  struct stat info {};
  const int seals = ::fcntl(file, F_GET_SEALS);
  if (::fstat(file, &info) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return FailedPrecondition("the catalogue is not sealed against shrinking");
  }
  catalogue::Header header{};
  if (::pread(file, &header, sizeof header, 0) != sizeof header || header.magic != catalogue::kMagic) {
    return FailedPrecondition("the file that the broker sent is not a catalogue");
  }
  if (header.version != catalogue::kVersion || header.record_bytes != sizeof(catalogue::Record) ||
      header.records_offset != catalogue::Extent::records_offset()) {
    return FailedPrecondition("the catalogue has layout ", header.version, ", this client reads ", catalogue::kVersion);
  }
  const bool possible = header.capacity > 0 && header.capacity <= catalogue::kSlotsMax;
  if (!possible || static_cast<uint64_t>(info.st_size) < catalogue::Extent{header.capacity}.bytes()) {
    return FailedPrecondition("the catalogue says ", header.capacity, " records and has ", info.st_size, " bytes");
  }
  return header.capacity;
}

}  // namespace

Result<std::unique_ptr<const ReadCatalogue>> ReadCatalogue::Map(const UniqueFd& file) {
  AB_ASSIGN_OR_RETURN(const auto capacity, CheckFile(file.get()));
  const uint64_t bytes = catalogue::Extent{capacity}.bytes();
  void* const base = MapFile(bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file.get());
  if (base == MAP_FAILED) return ResourceExhausted("mapping a catalogue of ", bytes, " bytes: ", std::strerror(errno));
  ::madvise(base, bytes, MADV_DONTFORK);
  return std::unique_ptr<const ReadCatalogue>(new ReadCatalogue(static_cast<const std::byte*>(base), capacity));
}

ReadCatalogue::~ReadCatalogue() { ::munmap(const_cast<std::byte*>(table_.base), table_.extent.bytes()); }

}  // namespace arraybridge
