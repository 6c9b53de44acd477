// SPDX-License-Identifier: Apache-2.0
// A PrivateRange is a copy-on-write mapping of one share for one consumer, in addition to the mapping of its Lease.
#pragma once

#include <memory>

#include "client/arenas/session_release.h"
#include "client/shares/lease.h"

namespace arraybridge {

class PrivateRange final : public SessionRelease {
 public:
  PrivateRange(std::shared_ptr<const Lease> of, std::unique_ptr<PrivateMapping> range);
  ~PrivateRange() override;
  void ReleaseInto(codec::Release& release) override;
  Mapping& Waited() override { return range_->mapping(); }

 private:
  std::shared_ptr<const Lease> lease_;
  std::unique_ptr<PrivateMapping> range_;
};

}  // namespace arraybridge
