// SPDX-License-Identifier: Apache-2.0
// The kinds of handles by which a GPU's memory can be shared with other processes, according to the driver and the
// platform.
#pragma once

#include <string>

#include "proto/boundary/cuda/driver.h"

namespace arraybridge::cuda {

// For each kind of handle, the reason why a GPU cannot be shared by it. Empty: it can.
struct Refusals {
  std::string vmm;
  std::string ipc;
};

// Facts about the host that the driver does not report, or reports only after it is initialised.
struct Platform {
  std::string kernel_release;
  std::string machine{};  // "compatible" of the device tree; empty without one, as on a PC

  static Platform Here();
  bool wsl() const;    // WSL2
  bool tegra() const;  // a system on a chip with an integrated GPU, such as a Jetson
};

// Only queries attributes; creates no context.
Refusals RefusalsOf(const Driver& driver, CUdevice device, const Platform& platform);

}  // namespace arraybridge::cuda
