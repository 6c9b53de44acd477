// SPDX-License-Identifier: Apache-2.0
// A MappedArray keeps a share and the registration of its arena, for an array of a GPU. It lets go of both after the
// work that this process has queued on the GPU when the array is dropped.
#pragma once

#include <memory>
#include <utility>

#include "client/arenas/session_release.h"
#include "client/one_memory/cuda_registration.h"
#include "client/shares/lease.h"

namespace arraybridge {

class MappedArray final : public SessionRelease {
 public:
  MappedArray(std::shared_ptr<const Lease> lease, std::shared_ptr<HostRegistration> registration)
      : SessionRelease(lease->releases), lease_(std::move(lease)), registration_(std::move(registration)) {}

  bool Waits() const override { return true; }
  Mapping& Waited() override { return *registration_; }
  void ReleaseInto(codec::Release& /*release*/) override {
    using Both = std::pair<std::shared_ptr<const Lease>, std::shared_ptr<HostRegistration>>;
    if (undrained()) releases->KeepUndrained(std::make_shared<const Both>(lease_, registration_));
  }

 private:
  std::shared_ptr<const Lease> lease_;
  std::shared_ptr<HostRegistration> registration_;  // ends first
};

}  // namespace arraybridge
