// SPDX-License-Identifier: Apache-2.0
// mremap with MREMAP_DONTUNMAP (Linux 5.13 for shared mappings) moves page tables and leaves the mapping itself, so
// that no address of the window is ever free, and a fault between the two moves finds the old file.
#include "client/windows/address_window.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cerrno>

#include "proto/boundary/explained_error.h"
#include "proto/boundary/pages/huge_page_size.h"

namespace arraybridge {
namespace {

constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, which older headers lack
constexpr int kReservation = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

uint64_t RoundUp(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

Status NoRoom(const char* what, uint64_t bytes) {
  const int error = errno;
  return ResourceExhausted(what, " ", bytes, " bytes of a window: ", ExplainedError(error, "this process"));
}

bool MovePages(std::byte* from, std::byte* to, uint64_t bytes) {
  return ::mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) != MAP_FAILED;
}

Status MoveFailed(uint64_t bytes) {
  if (errno != EINVAL) return NoRoom("moving", bytes);
  return Unimplemented("the kernel does not move mappings of files to other addresses: it needs Linux 5.13")
      .Because("NO_MOVE");
}

}  // namespace

uint64_t WindowPageSize() {
  static const auto size = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

AddressWindow::AddressWindow(std::byte* reserved, uint64_t reserved_bytes, uint64_t stride, uint64_t skip,
                             uint64_t bytes)
    : reserved_(reserved),
      reserved_bytes_(reserved_bytes),
      bytes_(bytes),
      live_(reserved + skip),
      beside_(live_ + stride),
      aside_(beside_ + stride) {}

AddressWindow::~AddressWindow() { ::munmap(reserved_, reserved_bytes_); }

Result<std::unique_ptr<AddressWindow>> AddressWindow::Reserve(uint64_t bytes, uint64_t file_offset) {
  const uint64_t place = file_offset % HugePageBytes();
  const uint64_t stride = RoundUp(place + bytes, HugePageBytes());
  const uint64_t all = 3 * stride + HugePageBytes();
  void* const reserved = ::mmap(nullptr, all, PROT_NONE, kReservation, -1, 0);
  if (reserved == MAP_FAILED) return NoRoom("reserving", all);
  const auto start = std::bit_cast<uint64_t>(reserved);
  const uint64_t skip = RoundUp(start, HugePageBytes()) - start + place;
  return std::unique_ptr<AddressWindow>(new AddressWindow(static_cast<std::byte*>(reserved), all, stride, skip, bytes));
}

Status AddressWindow::MapBeside(int descriptor, uint64_t offset) {
  if (::mmap(beside_, bytes_, PROT_READ, MAP_SHARED | MAP_FIXED, descriptor, static_cast<off_t>(offset)) == MAP_FAILED)
    return NoRoom("mapping", bytes_);
  // Both may be refused: then ordinary pages serve, and the first reads fault.
  ::madvise(beside_, bytes_, MADV_HUGEPAGE);
  ::madvise(beside_, bytes_, kPopulateRead);
  return Ok();
}

Status AddressWindow::Move() {
  if (!MovePages(live_, aside_, bytes_)) return MoveFailed(bytes_);
  // If this fails, the live range has lost page tables only.
  return MovePages(beside_, live_, bytes_) ? Ok() : MoveFailed(bytes_);
}

Status AddressWindow::Clear() {
  const auto bytes = static_cast<uint64_t>(aside_ - beside_) + bytes_;
  const bool cleared = ::mmap(beside_, bytes, PROT_NONE, kReservation | MAP_FIXED, -1, 0) != MAP_FAILED;
  return cleared ? Ok() : NoRoom("clearing", bytes);
}

}  // namespace arraybridge
