// SPDX-License-Identifier: Apache-2.0
// A PassedFd is one descriptor, or several of one kind, sent to a client, with the kind of their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

// kPages: memory of the broker itself: catalogues, hazard pages, queues and direct channels. All other kinds are
// arenas.
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

  // Several, in this order. REQUIRES: not empty.
  PassedFd(std::vector<UniqueFd> descriptors, FdKind kind) : UniqueFd(std::move(descriptors.front())), kind_(kind) {
    for (size_t i = 1; i < descriptors.size(); ++i) more_.push_back(std::move(descriptors[i]));
  }

  FdKind kind() const { return kind_; }
  size_t count() const { return valid() ? 1 + more_.size() : 0; }
  // The descriptors after the first.
  const std::vector<UniqueFd>& more() const { return more_; }

 private:
  static FdKind Of(HandleKind kind) { return kind == HandleKind::kCudaVmm ? FdKind::kCudaVmm : FdKind::kMemfd; }

  FdKind kind_ = FdKind::kMemfd;
  std::vector<UniqueFd> more_;
};

}  // namespace arraybridge::daemon
