// SPDX-License-Identifier: Apache-2.0
#include "client/session/capabilities.h"

#include <sys/stat.h>

#include <fstream>
#include <string>

#include "client/memory/cuda/cuda_devices.h"
#include "proto/boundary/cuda/driver_sharing.h"

namespace arraybridge {
namespace {

// Empty if the kernel does not provide it.
std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// 0 if the kernel does not provide it.
uint64_t PidNamespace() {
  struct stat found {};
  return ::stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

// The device of /dev/shm, through which CUDA drivers share events. 0 if there is none.
uint64_t ShmDevice() {
  struct stat found {};
  return ::stat("/dev/shm", &found) == 0 ? found.st_dev : 0;
}

}  // namespace

codec::Capabilities CapabilitiesOf(const MapperTable& mappers) {
  codec::Capabilities capabilities;
  capabilities.kinds = mappers.kinds();
  // The broker needs the location of a process only for GPU memory and events.
  if (capabilities.kinds.size() == 1) return capabilities;
  capabilities.boot_id = BootId();
  capabilities.pid_namespace = PidNamespace();
  capabilities.shm_device = ShmDevice();
  const cuda::Platform platform = cuda::Platform::Here();
  capabilities.wsl = platform.wsl();
  capabilities.tegra = platform.tegra();
  capabilities.cuda_driver_version = static_cast<uint32_t>(CudaDevices::DriverVersion(mappers.cuda_driver()));
  if (const CudaDevices* devices = CudaDevices::IfInitialised(mappers.cuda_driver()); devices != nullptr) {
    for (const Device& device : devices->all()) capabilities.gpu_uuids.push_back(device.uuid);
  }
  return capabilities;
}

}  // namespace arraybridge
