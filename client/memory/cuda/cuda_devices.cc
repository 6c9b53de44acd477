// SPDX-License-Identifier: Apache-2.0
#include "client/memory/cuda/cuda_devices.h"

#include <dlfcn.h>
#include <link.h>

#include <optional>

#include "client/process/fork_guard.h"
#include "proto/boundary/cuda/driver_uuid.h"

namespace arraybridge {

using cuda::ContextGuard;
using cuda::CUcontext;
using cuda::CUstream;
using cuda::Driver;

namespace {

// The number of libraries that this process has loaded, including unloaded ones (dl_iterate_phdr(3)).
uint64_t LibrariesLoaded() {
  uint64_t loaded = 0;
  const auto read = [](dl_phdr_info* info, size_t, void* into) {
    *static_cast<uint64_t*>(into) = info->dlpi_adds;
    return 1;
  };
  ::dl_iterate_phdr(read, &loaded);
  return loaded;
}

// Loads the library and keeps it loaded, because a driver does not survive unloading. Null if it cannot be loaded. The
// library path is searched again only after this process has loaded another library: a search takes as long as a
// connect to the broker.
void* LibraryAt(const std::string& path) {
  static std::atomic<uint64_t> absent_at{0};  // LibrariesLoaded() when the default driver was not found
  const uint64_t loaded = LibrariesLoaded();
  if (path.empty() && absent_at.load(std::memory_order_relaxed) == loaded) return nullptr;
  void* const library = ::dlopen(path.empty() ? "libcuda.so.1" : path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (path.empty() && library == nullptr) absent_at.store(loaded, std::memory_order_relaxed);
  return library;
}

// Calls a function of the driver with one output number as its only argument and returns the number; nothing if the
// function fails or does not exist.
std::optional<int> Query(const std::string& library, const char* call) {
  void* const driver = LibraryAt(library);
  if (driver == nullptr) return std::nullopt;
  const auto ask = reinterpret_cast<cuda::CUresult (*)(int*)>(::dlsym(driver, call));
  int number = 0;
  return ask != nullptr && ask(&number) == cuda::CUDA_SUCCESS ? std::optional(number) : std::nullopt;
}

// Never destroyed, because arrays may outlive other static objects. Without a lock, which a fork could leave locked in
// the child.
std::atomic<const CudaDevices*> g_of_this_process{nullptr};

}  // namespace

Result<CudaScope> CudaScope::Enter(const Driver& driver, CUcontext context) {
  CudaScope scope(driver);
  const Status relaxed =
      driver.Check(driver.ThreadExchangeStreamCaptureMode(&scope.mode_), "cuThreadExchangeStreamCaptureMode");
  if (!relaxed.ok()) {
    scope.driver_ = nullptr;
    return relaxed;
  }
  AB_ASSIGN_OR_RETURN(auto inside, ContextGuard::Enter(driver, context));
  scope.context_.emplace(std::move(inside));
  return scope;
}

CudaScope::~CudaScope() {
  if (driver_ == nullptr) return;
  context_.reset();
  driver_->ThreadExchangeStreamCaptureMode(&mode_);
}

CudaDevices::CudaDevices(const Driver& driver) : driver_(driver), fork_generation_(ForkGeneration()) {}

Result<std::unique_ptr<CudaDevices>> CudaDevices::Load(const std::string& library) {
  AB_ASSIGN_OR_RETURN(auto driver, Driver::Load(library));
  std::unique_ptr<CudaDevices> loaded(new CudaDevices(driver));
  int count = 0;
  AB_RETURN_IF_ERROR(driver.Check(driver.DeviceGetCount(&count), "cuDeviceGetCount"));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    auto gpu = std::make_unique<Gpu>();
    AB_RETURN_IF_ERROR(driver.Check(driver.DeviceGet(&gpu->number, ordinal), "cuDeviceGet"));
    AB_ASSIGN_OR_RETURN(auto uuid, cuda::UuidOf(driver, gpu->number));
    gpu->device = {kDeviceCuda, ordinal, std::move(uuid)};
    loaded->gpus_.push_back(std::move(gpu));
  }
  return loaded;
}

Result<const CudaDevices*> CudaDevices::OfThisProcess(const std::string& library) {
  const CudaDevices* known = g_of_this_process.load(std::memory_order_acquire);
  if (known == nullptr) {
    AB_ASSIGN_OR_RETURN(auto loaded, Load(library));
    // If another thread was first, this table, which is still empty, is destroyed.
    if (g_of_this_process.compare_exchange_strong(known, loaded.get(), std::memory_order_acq_rel))
      known = loaded.release();
  }
  AB_RETURN_IF_ERROR(known->CheckNotForked());
  return known;
}

const CudaDevices* CudaDevices::IfUsed() {
  const CudaDevices* known = g_of_this_process.load(std::memory_order_acquire);
  return known != nullptr && known->CheckNotForked().ok() ? known : nullptr;
}

const CudaDevices* CudaDevices::IfInitialised(const std::string& library) {
  if (const CudaDevices* used = IfUsed(); used != nullptr) return used;
  // The call fails until the driver is initialised in this very process; initialisation in the parent of a fork does
  // not count.
  if (!Query(library, "cuDeviceGetCount")) return nullptr;
  const auto found = OfThisProcess(library);
  return found.ok() ? *found : nullptr;
}

int CudaDevices::DriverVersion(const std::string& library) { return Query(library, "cuDriverGetVersion").value_or(0); }

bool CudaDevices::Present(const std::string& library) { return LibraryAt(library) != nullptr; }

Status CudaDevices::CheckNotForked() const {
  if (fork_generation_ == ForkGeneration()) return Ok();
  return FailedPrecondition(
             "CUDA cannot be used in a forked process whose parent has used it: start the process with spawn")
      .Because("CUDA_FORKED");
}

std::vector<Device> CudaDevices::all() const {
  std::vector<Device> devices;
  for (const auto& gpu : gpus_) devices.push_back(gpu->device);
  return devices;
}

Result<Device> CudaDevices::Find(const Device& device) const {
  std::string visible;
  for (const auto& gpu : gpus_) {
    const Device& here = gpu->device;
    if (device.uuid.empty() ? here.id == device.id : here.uuid == device.uuid) return here;
    visible += Concat(visible.empty() ? "" : ", ", here.uuid);
  }
  const std::string name = device.uuid.empty() ? Concat("cuda:", device.id) : device.uuid;
  return FailedPrecondition("this process does not see GPU ", name, "; visible: ", visible.empty() ? "none" : visible)
      .Because("DEVICE_NOT_VISIBLE");
}

Result<Device> CudaDevices::Local(const Device& device, const std::string& library) {
  if (device.type != kDeviceCuda) return Unimplemented("device type ", device.type, " is not a GPU");
  AB_ASSIGN_OR_RETURN(const auto devices, OfThisProcess(library));
  return devices->Find(device);
}

bool CudaDevices::Reaches(int32_t from, int32_t to) const {
  if (from == to || !peers_.load()) return from == to;
  const auto number = [this](int32_t ordinal) { return gpus_.at(static_cast<size_t>(ordinal))->number; };
  int can = 0;
  return driver_.DeviceCanAccessPeer(&can, number(from), number(to)) == cuda::CUDA_SUCCESS && can != 0;
}

std::vector<int32_t> CudaDevices::WhoReach(int32_t ordinal) const {
  std::vector<int32_t> reach;
  for (const auto& gpu : gpus_) {
    if (Reaches(gpu->device.id, ordinal)) reach.push_back(gpu->device.id);
  }
  return reach;
}

Result<CudaScope> CudaDevices::Enter(int32_t ordinal) const {
  AB_RETURN_IF_ERROR(CheckNotForked());
  const Gpu& gpu = *gpus_.at(static_cast<size_t>(ordinal));
  CUcontext context = gpu.context.load(std::memory_order_acquire);
  if (context == nullptr) {
    CUcontext retained = nullptr;
    AB_RETURN_IF_ERROR(driver_.Check(driver_.DevicePrimaryCtxRetain(&retained, gpu.number), "cuDevicePrimaryCtxRetain",
                                     gpu.device.uuid));
    if (gpu.context.compare_exchange_strong(context, retained, std::memory_order_acq_rel)) {
      context = retained;
    } else {
      driver_.DevicePrimaryCtxRelease(gpu.number);  // another thread was first
    }
  }
  return CudaScope::Enter(driver_, context);
}

std::vector<int32_t> CudaDevices::Active() const {
  std::vector<int32_t> active;
  if (!CheckNotForked().ok()) return active;
  for (const auto& gpu : gpus_) {
    unsigned int flags = 0;
    int exists = 0;
    const cuda::CUresult answer = driver_.DevicePrimaryCtxGetState(gpu->number, &flags, &exists);
    if (answer != cuda::CUDA_SUCCESS || exists != 0) active.push_back(gpu->device.id);
  }
  return active;
}

Result<CudaPlace> CudaDevices::At(const Device& device) {
  AB_ASSIGN_OR_RETURN(const auto devices, OfThisProcess());
  AB_ASSIGN_OR_RETURN(const auto at, devices->Find(device));
  AB_ASSIGN_OR_RETURN(auto inside, devices->Enter(at.id));
  return CudaPlace{devices->driver(), std::move(inside)};
}

Result<CUstream> CudaDevices::OwnStream(int32_t ordinal) const {
  const Gpu& gpu = *gpus_.at(static_cast<size_t>(ordinal));
  CUstream stream = gpu.stream.load(std::memory_order_acquire);
  if (stream != nullptr) return stream;
  CUstream made = nullptr;
  AB_RETURN_IF_ERROR(driver_.Check(driver_.StreamCreate(&made, cuda::kStreamNonBlocking), "cuStreamCreate"));
  if (gpu.stream.compare_exchange_strong(stream, made, std::memory_order_acq_rel)) return made;
  driver_.StreamDestroy(made);  // another thread was first
  return stream;
}

}  // namespace arraybridge
