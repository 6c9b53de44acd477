// SPDX-License-Identifier: Apache-2.0
// A ContextGuard makes a context current on this thread and, when it is destroyed on the same thread, restores the
// previous one. A library in users' processes must leave no context behind.
#pragma once

#include <utility>

#include "proto/boundary/cuda/driver.h"

namespace arraybridge::cuda {

class ContextGuard {
 public:
  // `driver` must outlive the guard. Returns the driver's error: FAILED_PRECONDITION for a destroyed context.
  static Result<ContextGuard> Enter(const Driver& driver, CUcontext context) {
    CUcontext previous = nullptr;
    AB_RETURN_IF_ERROR(driver.Check(driver.CtxGetCurrent(&previous), "cuCtxGetCurrent"));
    if (previous == context) return ContextGuard(nullptr, nullptr);
    AB_RETURN_IF_ERROR(driver.Check(driver.CtxSetCurrent(context), "cuCtxSetCurrent"));
    return ContextGuard(&driver, previous);
  }

  ContextGuard(ContextGuard&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)), previous_(other.previous_) {}
  ContextGuard& operator=(ContextGuard&&) = delete;
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;
  ~ContextGuard() {
    if (driver_ == nullptr) return;
    // The previous context may have been destroyed meanwhile. Then no context is made current, so that ours does not
    // remain.
    if (driver_->CtxSetCurrent(previous_) != CUDA_SUCCESS) driver_->CtxSetCurrent(nullptr);
  }

 private:
  ContextGuard(const Driver* driver, CUcontext previous) : driver_(driver), previous_(previous) {}

  const Driver* driver_;  // null: nothing to restore
  CUcontext previous_;
};

}  // namespace arraybridge::cuda
