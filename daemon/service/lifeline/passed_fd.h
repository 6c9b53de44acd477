// A PassedFd is a descriptor that is sent to a client, with the kind of its memory.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// kPages: memory of the broker itself: catalogues, hazard pages, queues and direct channels. All other kinds are arenas.
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
  // The descriptor of an arena. REQUIRES: it is valid only if the kind has descriptors.
  PassedFd(UniqueFd descriptor, HandleKind kind) : PassedFd(std::move(descriptor), Of(kind)) {}

  FdKind kind() const { return kind_; }

 private:
  static FdKind Of(HandleKind kind) { return kind == HandleKind::kCudaVmm ? FdKind::kCudaVmm : FdKind::kMemfd; }

  FdKind kind_ = FdKind::kMemfd;
};

}  // namespace arraybridge
