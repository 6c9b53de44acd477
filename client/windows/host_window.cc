// SPDX-License-Identifier: Apache-2.0
#include "client/windows/host_window.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "client/windows/address_window.h"
#include "proto/boundary/explained_error.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {
namespace {

uint64_t InPage(uint64_t offset) { return offset % WindowPageSize(); }

// A file of this process that has the slab's bytes at `skip`.
Result<UniqueFd> CopyOfSlab(const View& slab, uint64_t skip) {
  UniqueFd file(::memfd_create("arraybridge-window", MFD_CLOEXEC));
  const uint64_t bytes = slab.nbytes();
  bool written = file.valid() && ::ftruncate(file.get(), static_cast<off_t>(skip + bytes)) == 0;
  for (uint64_t done = 0; written && done < bytes;) {
    const auto* const from = static_cast<const std::byte*>(slab.data) + done;
    const ssize_t count = ::pwrite(file.get(), from, bytes - done, static_cast<off_t>(skip + done));
    if (count > 0) done += static_cast<uint64_t>(count);
    if (count <= 0) written = count < 0 && errno == EINTR;
  }
  if (written) return file;
  const int error = errno;
  return ResourceExhausted("copying ", bytes, " bytes into a window: ", ExplainedError(error, "this process"));
}

class HostWindow final : public WindowMemory {
 public:
  // `skip`: from the first byte of the window to that of the slab; less than a page.
  HostWindow(std::unique_ptr<AddressWindow> addresses, uint64_t skip) : addresses_(std::move(addresses)), skip_(skip) {}

  const std::byte* slab() const override { return addresses_->live() + skip_; }

  // Mapped if it begins at the same place of a page as the first one, as the slabs of large bundles do.
  Result<SwapWindow::How> Prepare(const LeasedSlab& next) override {
    const bool mapped = InPage(next.offset) == skip_;
    UniqueFd copy;
    if (!mapped) {
      AB_ASSIGN_OR_RETURN(copy, CopyOfSlab(next.view, skip_));
    }
    const int file = mapped ? next.lease->arena->handle.descriptor.get() : copy.get();
    AB_RETURN_IF_ERROR(addresses_->MapBeside(file, mapped ? next.offset - skip_ : 0));
    return mapped ? SwapWindow::How::kMapped : SwapWindow::How::kCopied;
  }

  Status Move() override { return addresses_->Move(); }
  Status Clear() override { return addresses_->Clear(); }

 private:
  const std::unique_ptr<AddressWindow> addresses_;
  const uint64_t skip_;
};

}  // namespace

Result<std::unique_ptr<WindowMemory>> HostWindowFor(const LeasedSlab& first) {
  const uint64_t skip = InPage(first.offset);
  const uint64_t pages = (skip + first.view.nbytes() + WindowPageSize() - 1) / WindowPageSize();
  AB_ASSIGN_OR_RETURN(auto addresses, AddressWindow::Reserve(pages * WindowPageSize(), first.offset - skip));
  return std::unique_ptr<WindowMemory>(std::make_unique<HostWindow>(std::move(addresses), skip));
}

}  // namespace arraybridge
