// A PassedFd is a descriptor on its way to a client, and what it is of.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// kPages: the broker's own, catalogues, pages of holds, rings, doorbells and direct channels; the others are arenas.
enum class FdKind : uint8_t { kMemfd, kCudaVmm, kPages, kLast = kPages };

constexpr std::string_view NameOf(FdKind kind) {
  switch (kind) {
    case FdKind::kMemfd:
      return NameOf(HandleKind::kMemfd);
    case FdKind::kCudaVmm:
      return NameOf(HandleKind::kCudaVmm);
    case FdKind::kPages:
      break;
  }
  return "pages";
}

class PassedFd : public UniqueFd {
 public:
  PassedFd() = default;
  PassedFd(UniqueFd descriptor, FdKind kind) : UniqueFd(std::move(descriptor)), kind_(kind) {}
  // Of an arena. REQUIRES: valid only where the kind has descriptors.
  PassedFd(UniqueFd descriptor, HandleKind kind) : PassedFd(std::move(descriptor), Of(kind)) {}

  FdKind kind() const { return kind_; }

 private:
  static FdKind Of(HandleKind kind) { return kind == HandleKind::kCudaVmm ? FdKind::kCudaVmm : FdKind::kMemfd; }

  FdKind kind_ = FdKind::kMemfd;
};

}  // namespace arraybridge
