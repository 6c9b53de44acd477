// SPDX-License-Identifier: Apache-2.0
#include "daemon/mover/share_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/mover/tensors.h"
#include "proto/boundary/failpoint.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kAtOnce = 4 << 20;  // bytes that are copied at once: they stay in the cache for the digest

Status DiskFailed(const char* what, int error) {
  return Unavailable("the disk of [tiers] failed: ", what, ": ", std::strerror(error)).Because("DISK_FAILED");
}

Status Damaged(const char* what) {
  return MakeStatus(Code::kDataLoss, "the file of the share is damaged: ", what).Because("SHARE_LOST");
}

Status WriteAll(int file, std::string_view bytes, uint64_t at) {
  if (Failpoint("tier_write")) return DiskFailed("the file cannot be written", ENOSPC);
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return DiskFailed("the file cannot be written", written == 0 ? ENOSPC : errno);
    bytes.remove_prefix(static_cast<size_t>(written));
    at += static_cast<uint64_t>(written);
  }
  return Ok();
}

Status ReadAll(int file, char* to, uint64_t size, uint64_t at) {
  if (Failpoint("tier_read")) return DiskFailed("the file cannot be read", EIO);
  while (size > 0) {
    const ssize_t got = ::pread(file, to, size, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return DiskFailed("the file cannot be read", errno);
    if (got == 0) return Damaged("it is too short");
    to += got;
    at += static_cast<uint64_t>(got);
    size -= static_cast<uint64_t>(got);
  }
  return Ok();
}

// A mapping of a range of a block, which ends with it.
class Mapped {
 public:
  static Result<Mapped> Of(const MemoryBlock& block, Access access, uint64_t offset, uint64_t size) {
    AB_ASSIGN_OR_RETURN(const auto handle, block.Export(access));
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const uint64_t before = offset % page;
    const int rights = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
    void* const start = ::mmap(nullptr, before + size, rights, MAP_SHARED | MAP_POPULATE, handle.descriptor.get(),
                               static_cast<off_t>(offset - before));
    if (start == MAP_FAILED) {
      return ResourceExhausted("the daemon cannot map ", size, " bytes of a share: ", std::strerror(errno))
          .Because("SYSTEM_MEMORY");
    }
    return Mapped(start, before, size);
  }
  Mapped(Mapped&& other) noexcept
      : start_(std::exchange(other.start_, nullptr)), before_(other.before_), size_(other.size_) {}
  Mapped& operator=(Mapped&&) = delete;
  ~Mapped() {
    if (start_ != nullptr) ::munmap(start_, before_ + size_);
  }
  char* data() const { return static_cast<char*>(start_) + before_; }

 private:
  Mapped(void* start, uint64_t before, uint64_t size) : start_(start), before_(before), size_(size) {}

  void* start_;
  uint64_t before_;
  uint64_t size_;
};

Digest::Value DigestIn(const label::Label& label) { return {label.digest_low, label.digest_high}; }

// Writes the data, and then the header, which has their digest.
Status Fill(int file, label::Label label, std::string_view bytes) {
  label.digest_low = label.digest_high = ~uint64_t{0};  // the header with the digest has the same size
  const uint64_t start = DataStart(label);
  const int error = ::posix_fallocate(file, 0, static_cast<off_t>(start + bytes.size()));
  if (error != 0 && error != EOPNOTSUPP && error != EINVAL) return DiskFailed("there is no room for the file", error);
  Digest digest;
  for (uint64_t at = 0; at < bytes.size(); at += kAtOnce) {
    const std::string_view part = bytes.substr(at, kAtOnce);
    digest.Add(part);
    AB_RETURN_IF_ERROR(WriteAll(file, part, start + at));
  }
  label.digest_low = digest.value().low;
  label.digest_high = digest.value().high;
  AB_RETURN_IF_ERROR(WriteAll(file, HeaderOf(label), 0));
  if (label.durable && ::fdatasync(file) != 0) return DiskFailed("the file cannot be written", errno);
  return Ok();
}

// Reads the data in parts, each to where `place` says.
template <class Place>
Status ReadData(const OpenedFile& opened, Place place) {
  Digest digest;
  for (uint64_t at = 0; at < opened.label.size; at += kAtOnce) {
    const uint64_t size = std::min(kAtOnce, opened.label.size - at);
    char* const to = place(at);
    AB_RETURN_IF_ERROR(ReadAll(opened.file.get(), to, size, opened.data + at));
    digest.Add({to, size});
  }
  return digest.value() == DigestIn(opened.label) ? Ok() : Damaged("its bytes do not have the digest that it states");
}

}  // namespace

Status WriteShare(const TierDirectory& directory, const TierFile& file, label::Label label, const MemoryBlock& block,
                  uint64_t offset) {
  const std::string part = file.part_name();
  AB_ASSIGN_OR_RETURN(const auto mapped, Mapped::Of(block, Access::kRead, offset, label.size));
  Status written = [&]() -> Status {
    auto opened = directory.Open(part, O_RDWR | O_CREAT | O_EXCL);
    if (!opened.ok()) return Unavailable(opened.status().message()).Because("DISK_FAILED");
    static_cast<void>(Failpoint("tier_file_made"));
    AB_RETURN_IF_ERROR(Fill(opened->get(), label, {mapped.data(), label.size}));
    static_cast<void>(Failpoint("tier_file_written"));
    AB_RETURN_IF_ERROR(directory.Rename(part, file.name()));
    static_cast<void>(Failpoint("tier_file_named"));
    return label.durable ? directory.Sync() : Ok();
  }();
  if (!written.ok()) directory.Remove(part);
  return written;
}

Result<OpenedFile> OpenShare(const TierDirectory& directory, const std::string& name) {
  OpenedFile opened;
  auto file = directory.Open(name, O_RDONLY);
  if (file.status().reason() == "FILE_GONE") return Damaged("it is gone");
  if (!file.ok()) return file.status();
  opened.file = *std::move(file);
  struct stat facts {};
  if (::fstat(opened.file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return Damaged("it is no regular file");
  std::array<char, sizeof(uint64_t)> start{};
  AB_RETURN_IF_ERROR(ReadAll(opened.file.get(), start.data(), start.size(), 0));
  opened.data = HeaderBytes({start.data(), start.size()});
  if (opened.data == 0 || opened.data > static_cast<uint64_t>(facts.st_size)) return Damaged("its header is not whole");
  std::string header(opened.data, '\0');
  AB_RETURN_IF_ERROR(ReadAll(opened.file.get(), header.data(), header.size(), 0));
  opened.storage = std::make_unique<std::string>();
  auto label = LabelIn(header, opened.storage.get());
  if (!label.ok()) return Damaged("its header is not the one that was written");
  opened.label = *std::move(label);
  if (static_cast<uint64_t>(facts.st_size) - opened.data < opened.label.size) return Damaged("it is too short");
  return opened;
}

Status ReadShare(const OpenedFile& opened, const MemoryBlock& block) {
  AB_ASSIGN_OR_RETURN(const auto mapped, Mapped::Of(block, Access::kWrite, 0, opened.label.size));
  return ReadData(opened, [&](uint64_t at) { return mapped.data() + at; });
}

Status CheckShare(const OpenedFile& opened) {
  std::vector<char> part(kAtOnce);
  return ReadData(opened, [&](uint64_t) { return part.data(); });
}

}  // namespace arraybridge::daemon
