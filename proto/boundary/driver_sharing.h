// As what a GPU's memory can be handed to other processes, as far as the driver and the platform say.
#pragma once

#include <string>

#include "proto/boundary/driver.h"

namespace arraybridge::cuda {

// What kinds of handle a GPU cannot be shared by, and why not. Empty: it can.
struct Refusals {
  std::string vmm;
  std::string ipc;
};

// What the driver does not say of where it runs, or only once it is initialised.
struct Platform {
  std::string kernel_release;
  std::string machine{};  // by its device tree: what it is compatible with; empty where there is none, as on a PC

  static Platform Here();
  bool wsl() const;    // WSL2
  bool tegra() const;  // a system on a chip, as in a Jetson: its GPU is integrated
};

// Asks for attributes alone: no context is made.
Refusals RefusalsOf(const Driver& driver, CUdevice device, const Platform& platform);

}  // namespace arraybridge::cuda
