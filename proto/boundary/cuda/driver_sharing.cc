// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/cuda/driver_sharing.h"

#include <sys/utsname.h>

#include <fstream>
#include <iterator>

namespace arraybridge::cuda {
namespace {

int Attribute(const Driver& driver, CUdevice_attribute attribute, CUdevice ordinal) {
  int value = 0;
  return driver.DeviceGetAttribute(&value, attribute, ordinal) == CUDA_SUCCESS ? value : 0;
}

}  // namespace

Refusals RefusalsOf(const Driver& driver, CUdevice ordinal, const Platform& platform) {
  const auto has = [&](CUdevice_attribute attribute) { return Attribute(driver, attribute, ordinal) != 0; };
  Refusals refusals;
  if (!has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
    refusals.vmm = "the device has no virtual memory management";
  } else if (!has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
    refusals.vmm = "the driver exports no descriptors (as under WSL2)";
  }
  if (platform.wsl()) {
    refusals.ipc = "cudaIpcMemHandle is not reliable under WSL2";
  } else if (platform.tegra() || has(CU_DEVICE_ATTRIBUTE_INTEGRATED)) {
    refusals.ipc = "an integrated GPU does not support cudaIpcMemHandle";
  } else if (!has(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)) {
    refusals.ipc = "the device has no unified addressing";
  } else if (!has(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED)) {
    refusals.ipc = "the driver does not support interprocess handles here";
  }
  return refusals;
}

Platform Platform::Here() {
  utsname kernel{};
  std::ifstream compatible("/proc/device-tree/compatible", std::ios::binary);
  return {::uname(&kernel) == 0 ? kernel.release : "", {std::istreambuf_iterator<char>(compatible), {}}};
}

// The release of a WSL2 kernel contains this word.
bool Platform::wsl() const { return kernel_release.find("microsoft") != std::string::npos; }

bool Platform::tegra() const { return machine.find("nvidia,tegra") != std::string::npos; }

}  // namespace arraybridge::cuda
