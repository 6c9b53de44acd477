// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/cuda/driver.h"

#include <dlfcn.h>

namespace arraybridge::cuda {
namespace {

enum class Need : uint8_t { kRequired, kOptional };

// Finds calls by base name and version. For an unknown name, and for a version that is too low, cuGetProcAddress
// returns success and a null pointer.
class Resolver {
 public:
  explicit Resolver(void* library) {
    find5_ = reinterpret_cast<Find5>(dlsym(library, "cuGetProcAddress_v2"));
    find4_ = reinterpret_cast<Find4>(dlsym(library, "cuGetProcAddress"));
  }
  bool usable() const { return find5_ != nullptr || find4_ != nullptr; }
  void* Find(const char* name, int version) const {
    void* found = nullptr;
    CUdriverProcAddressQueryResult why{};
    const CUresult result =
        find5_ != nullptr ? find5_(name, &found, version, 0, &why) : find4_(name, &found, version, 0);
    return result == CUDA_SUCCESS ? found : nullptr;
  }

 private:
  using Find5 = CUresult (*)(const char*, void**, int, uint64_t, CUdriverProcAddressQueryResult*);  // since 12.0
  using Find4 = CUresult (*)(const char*, void**, int, uint64_t);                                   // since 11.3
  Find5 find5_ = nullptr;
  Find4 find4_ = nullptr;
};

// The reason why a library cannot be loaded, without the path with which dlerror's text begins.
std::string WhyNotLoaded() {
  const char* text = dlerror();
  const std::string why = text == nullptr ? "unknown reason" : text;
  const size_t end_of_path = why.find(": ");
  return end_of_path == std::string::npos ? why : why.substr(end_of_path + 2);
}

Status TooOld(int version) {
  return Unavailable("the CUDA driver supports CUDA ", Dotted(version), "; at least ", Dotted(Driver::kVersionMin),
                     " is needed")
      .Because("CUDA_DRIVER_TOO_OLD");
}

const char* InitHint(CUresult result) {
  switch (result) {
    case CUDA_ERROR_STUB_LIBRARY:
      return "the library is the toolkit's stub, not a driver";
    case CUDA_ERROR_NO_DEVICE:
      return "no CUDA device is visible";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return "the library does not match the kernel's driver";
    default:
      return "the driver cannot be used";
  }
}

// Turns every result of initialising into UNAVAILABLE, which means: go on without CUDA.
Status InitStatus(const Driver& driver, CUresult result) {
  if (result == CUDA_SUCCESS) return Ok();
  const Status explained = driver.Check(result, "cuInit", InitHint(result));
  return Unavailable(explained.message()).Because(explained.reason());
}

// The code of a result. `refused` is the code for an argument that the driver refuses.
Code CodeOf(CUresult result, Code refused) {
  if (IsSticky(result)) return Code::kAborted;
  switch (result) {
    case CUDA_SUCCESS:
      return Code::kOk;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_INVALID_HANDLE:
      return refused;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return Code::kResourceExhausted;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:  // exclusive mode: another process uses the device
    case CUDA_ERROR_OPERATING_SYSTEM:
    case CUDA_ERROR_MAP_FAILED:
    case CUDA_ERROR_TOO_MANY_PEERS:
    case CUDA_ERROR_NOT_READY:
      return Code::kUnavailable;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:
      return Code::kUnimplemented;
    case CUDA_ERROR_NOT_PERMITTED:
      return Code::kPermissionDenied;
    case CUDA_ERROR_INVALID_CONTEXT:  // the handle is of this process or of another PID namespace
      return Code::kFailedPrecondition;
    default:
      return Code::kInternal;
  }
}

}  // namespace

std::string Dotted(int version) { return Concat(version / 1000, ".", version % 1000 / 10); }

bool IsSticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_EXTERNAL_DEVICE:
      return true;
    default:
      return false;
  }
}

bool IsCapture(CUresult result) {
  return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_CAPTURED_EVENT;
}

bool IsSticky(const Status& status) {
  return status.code() == Code::kAborted && status.reason().starts_with("CUDA_ERROR_");
}

std::string Driver::NameOf(CUresult result) const {
  const char* name = nullptr;
  if (GetErrorName != nullptr && GetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr) return name;
  return Concat("CUDA_ERROR_", static_cast<uint32_t>(result));
}

Status Driver::Explain(CUresult result, std::string_view symbol, const std::string& detail, Code refused) const {
  const std::string name = NameOf(result);
  return MakeStatus(CodeOf(result, refused), symbol, ": ", name, " (", static_cast<uint32_t>(result), ")",
                    detail.empty() ? "" : ": ", detail)
      .Because(name);
}

Result<Driver> Driver::Load(const std::string& path) {
  // Never loads libcuda.so, which is the toolkit's stub. The library is never closed, because a driver does not survive
  // unloading.
  void* library = dlopen(path.empty() ? "libcuda.so.1" : path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unavailable("the CUDA driver library cannot be loaded: ", WhyNotLoaded()).Because("CUDA_LIBRARY_ABSENT");
  }
  Driver driver;
  const Resolver resolver(library);
  driver.DriverGetVersion = reinterpret_cast<decltype(driver.DriverGetVersion)>(dlsym(library, "cuDriverGetVersion"));
  driver.GetErrorName = reinterpret_cast<decltype(driver.GetErrorName)>(dlsym(library, "cuGetErrorName"));
  if (driver.DriverGetVersion == nullptr) {
    return Unavailable("the library has no cuDriverGetVersion, so it is not a CUDA driver")
        .Because("CUDA_SYMBOL_MISSING");
  }
  AB_RETURN_IF_ERROR(InitStatus(driver, driver.DriverGetVersion(&driver.version)));
  if (driver.version < kVersionMin) return TooOld(driver.version);
  if (!resolver.usable()) {
    return Unavailable("the CUDA driver has no cuGetProcAddress").Because("CUDA_SYMBOL_MISSING");
  }
  const auto missing = [](const char* name, int introduced) {
    return Unavailable("the CUDA driver has no ", name, " of CUDA ", Dotted(introduced)).Because("CUDA_SYMBOL_MISSING");
  };
#define AB_DRIVER_RESOLVE(name, introduced, suffix, need, parameters)                                  \
  driver.name = reinterpret_cast<CUresult(*) parameters>(resolver.Find("cu" #name, introduced));       \
  if (driver.name == nullptr && Need::need == Need::kRequired) return missing("cu" #name, introduced); \
  static_assert(Need::need == Need::kOptional || introduced <= kVersionMin);
  AB_DRIVER_SYMBOLS(AB_DRIVER_RESOLVE)
#undef AB_DRIVER_RESOLVE
  AB_RETURN_IF_ERROR(InitStatus(driver, driver.Init(0)));
  return driver;
}

}  // namespace arraybridge::cuda
