// A PassedFd is a descriptor on its way to a client, or several of one kind, and what they are of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// kPages: catalogues, hazard pages, session queues and direct channels; the other kinds are arenas.
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

  // Several, in this order. REQUIRES: not empty.
  PassedFd(std::vector<UniqueFd> descriptors, FdKind kind) : UniqueFd(std::move(descriptors.front())), kind_(kind) {
    for (size_t i = 1; i < descriptors.size(); ++i) more_.push_back(std::move(descriptors[i]));
  }

  FdKind kind() const { return kind_; }
  size_t count() const { return valid() ? 1 + more_.size() : 0; }
  // Those after the first.
  const std::vector<UniqueFd>& more() const { return more_; }

 private:
  static FdKind Of(HandleKind kind) { return kind == HandleKind::kCudaVmm ? FdKind::kCudaVmm : FdKind::kMemfd; }

  FdKind kind_ = FdKind::kMemfd;
  std::vector<UniqueFd> more_;
};

}  // namespace arraybridge
