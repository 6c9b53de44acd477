// SPDX-License-Identifier: Apache-2.0
// The management library, libnvidia-ml.so.1, of the machine that the Config describes: the calls with which frameworks
// look for devices. It knows all devices of the machine, as the real one does, and not only those that a process sees.
// What is in use on a device is unknown to it, so it reports none. Links between devices there are none.
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/simulated_cuda/config.h"

#define NVML extern "C" __attribute__((visibility("default"))) nvmlReturn

namespace arraybridge::simulated {
namespace {

enum nvmlReturn : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
};

struct Pci {
  char short_bus_id[16];
  unsigned int domain;
  unsigned int bus;
  unsigned int device;
  unsigned int device_id;
  unsigned int subsystem_id;
  char bus_id[32];
};
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct MemoryVersion2 {
  unsigned int version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};
struct Utilization {
  unsigned int gpu;
  unsigned int memory;
};

// A handle is the device's number, from 1, so that it is not null.
using Device = struct DeviceRecord*;

const Config& Machine() {
  static const Config config = Config::Read();
  return config;
}

bool& Initialised() {
  static bool initialised = false;
  return initialised;
}

Device HandleOf(int physical) { return reinterpret_cast<Device>(static_cast<uintptr_t>(physical + 1)); }
int NumberOf(Device device) { return static_cast<int>(reinterpret_cast<uintptr_t>(device)) - 1; }

nvmlReturn Refusal(Device device) {
  if (!Initialised()) return kUninitialized;
  const int number = NumberOf(device);
  return number >= 0 && number < Machine().devices ? kSuccess : kInvalidArgument;
}

nvmlReturn Write(const std::string& text, char* to, unsigned int size) {
  if (to == nullptr) return kInvalidArgument;
  if (size <= text.size()) return kInsufficientSize;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return kSuccess;
}

// Stores a value of a device.
template <class T>
nvmlReturn Give(Device device, T* to, const T& value) {
  if (const nvmlReturn refused = Refusal(device)) return refused;
  if (to == nullptr) return kInvalidArgument;
  *to = value;
  return kSuccess;
}

nvmlReturn NotSupported(Device device) {
  const nvmlReturn refused = Refusal(device);
  return refused == kSuccess ? kNotSupported : refused;
}

std::string UuidOf(int physical) {
  std::string text = "GPU-";
  const cuda::CUuuid uuid = Machine().Uuid(physical);
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", uuid.bytes[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += "-";
    text += digits;
  }
  return text;
}

std::string BusIdOf(int physical, const char* form) {
  char text[32];
  std::snprintf(text, sizeof(text), form, physical + 1);
  return text;
}
constexpr const char* kShortForm = "0000:%02x:00.0";
constexpr const char* kLongForm = "00000000:%02x:00.0";

nvmlReturn Find(Device* device, const std::string& wanted, std::string (*of)(int)) {
  if (!Initialised()) return kUninitialized;
  if (device == nullptr) return kInvalidArgument;
  for (int physical = 0; physical < Machine().devices; ++physical) {
    if (of(physical) != wanted) continue;
    *device = HandleOf(physical);
    return kSuccess;
  }
  return kNotFound;
}

}  // namespace

NVML nvmlInit_v2() {
  Initialised() = true;
  return kSuccess;
}
NVML nvmlInit() { return nvmlInit_v2(); }
NVML nvmlInitWithFlags(unsigned int) { return nvmlInit_v2(); }
NVML nvmlShutdown() {
  if (!Initialised()) return kUninitialized;
  Initialised() = false;
  return kSuccess;
}
extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(nvmlReturn result) {
  switch (result) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotSupported:
      return "Not Supported";
    case kNotFound:
      return "Not Found";
    case kInsufficientSize:
      return "Insufficient Size";
  }
  return "Unknown Error";
}

NVML nvmlSystemGetDriverVersion(char* text, unsigned int size) {
  return Initialised() ? Write("580.0.0", text, size) : kUninitialized;
}
NVML nvmlSystemGetNVMLVersion(char* text, unsigned int size) {
  return Initialised() ? Write("13.580.0.0", text, size) : kUninitialized;
}
// Works before the library is initialised.
NVML nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (version == nullptr) return kInvalidArgument;
  *version = Machine().version;
  return kSuccess;
}
NVML nvmlSystemGetCudaDriverVersion(int* version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

NVML nvmlDeviceGetCount_v2(unsigned int* count) {
  if (!Initialised()) return kUninitialized;
  if (count == nullptr) return kInvalidArgument;
  *count = static_cast<unsigned int>(Machine().devices);
  return kSuccess;
}
NVML nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device* device) {
  if (!Initialised()) return kUninitialized;
  if (device == nullptr || index >= static_cast<unsigned int>(Machine().devices)) return kInvalidArgument;
  *device = HandleOf(static_cast<int>(index));
  return kSuccess;
}
NVML nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
  return uuid == nullptr ? kInvalidArgument : Find(device, uuid, &UuidOf);
}
NVML nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Device* device) {
  if (bus_id == nullptr) return kInvalidArgument;
  const nvmlReturn found = Find(device, bus_id, [](int physical) { return BusIdOf(physical, kShortForm); });
  if (found != kNotFound) return found;
  return Find(device, bus_id, [](int physical) { return BusIdOf(physical, kLongForm); });
}

NVML nvmlDeviceGetName(Device device, char* text, unsigned int size) {
  if (const nvmlReturn refused = Refusal(device)) return refused;
  return Write("Simulated GPU " + std::to_string(NumberOf(device)), text, size);
}
NVML nvmlDeviceGetUUID(Device device, char* text, unsigned int size) {
  if (const nvmlReturn refused = Refusal(device)) return refused;
  return Write(UuidOf(NumberOf(device)), text, size);
}
NVML nvmlDeviceGetIndex(Device device, unsigned int* index) {
  return Give(device, index, static_cast<unsigned int>(NumberOf(device)));
}
NVML nvmlDeviceGetMinorNumber(Device device, unsigned int* number) { return nvmlDeviceGetIndex(device, number); }
NVML nvmlDeviceGetPciInfo_v3(Device device, Pci* pci) {
  Pci made{};
  made.bus = static_cast<unsigned int>(NumberOf(device) + 1);
  Write(BusIdOf(NumberOf(device), kShortForm), made.short_bus_id, sizeof(made.short_bus_id));
  Write(BusIdOf(NumberOf(device), kLongForm), made.bus_id, sizeof(made.bus_id));
  return Give(device, pci, made);
}
NVML nvmlDeviceGetMemoryInfo(Device device, Memory* memory) {
  return Give(device, memory, Memory{Machine().memory, Machine().memory, 0});
}
NVML nvmlDeviceGetMemoryInfo_v2(Device device, MemoryVersion2* memory) {
  if (memory == nullptr) return kInvalidArgument;
  return Give(device, memory, MemoryVersion2{memory->version, Machine().memory, 0, Machine().memory, 0});
}
NVML nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  if (const nvmlReturn refused = Give(device, major, 9)) return refused;
  return Give(device, minor, 0);
}
NVML nvmlDeviceGetComputeMode(Device device, unsigned int* mode) {
  return Give(device, mode, Machine().exclusive ? 3U : 0U);
}
NVML nvmlDeviceGetPersistenceMode(Device device, unsigned int* mode) { return Give(device, mode, 1U); }
NVML nvmlDeviceGetMemoryBusWidth(Device device, unsigned int* bits) { return Give(device, bits, 5120U); }
NVML nvmlDeviceGetMaxClockInfo(Device device, unsigned int, unsigned int* megahertz) {
  return Give(device, megahertz, 1000U);
}
NVML nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned int* generation) {
  return Give(device, generation, 5U);
}
NVML nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned int* generation) {
  return Give(device, generation, 5U);
}
NVML nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned int* width) { return Give(device, width, 16U); }
NVML nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned int* width) { return Give(device, width, 16U); }
NVML nvmlDeviceGetPcieLinkMaxSpeed(Device device, unsigned int* megabytes) { return Give(device, megabytes, 32000U); }
NVML nvmlDeviceGetUtilizationRates(Device device, Utilization* rates) { return Give(device, rates, Utilization{0, 0}); }
NVML nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned int* count, void*) {
  return Give(device, count, 0U);
}
NVML nvmlDeviceGetP2PStatus(Device device, Device peer, unsigned int, unsigned int* status) {
  if (const nvmlReturn refused = Refusal(peer)) return refused;
  return Give(device, status, Machine().peers ? 0U : 3U);  // 3: not supported
}

#define NOT_SUPPORTED(name, ...)           \
  NVML name(Device device, ##__VA_ARGS__); \
  NVML name(Device device, ##__VA_ARGS__) { return NotSupported(device); }
NOT_SUPPORTED(nvmlDeviceGetFieldValues, int, void*)
NOT_SUPPORTED(nvmlDeviceGetGpuFabricInfo, void*)
NOT_SUPPORTED(nvmlDeviceGetGpuFabricInfoV, void*)
NOT_SUPPORTED(nvmlDeviceGetMigMode, unsigned int*, unsigned int*)
NOT_SUPPORTED(nvmlDeviceGetNvLinkCapability, unsigned int, unsigned int, unsigned int*)
NOT_SUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2, unsigned int, void*)
NOT_SUPPORTED(nvmlDeviceGetNvLinkState, unsigned int, unsigned int*)
NOT_SUPPORTED(nvmlDeviceGetNvLinkVersion, unsigned int, unsigned int*)
NOT_SUPPORTED(nvmlDeviceGetPowerUsage, unsigned int*)
NOT_SUPPORTED(nvmlDeviceGetConfComputeGpuAttestationReport, void*)
#undef NOT_SUPPORTED

}  // namespace arraybridge::simulated
