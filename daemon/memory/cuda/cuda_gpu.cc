// SPDX-License-Identifier: Apache-2.0
#include "daemon/memory/cuda/cuda_gpu.h"

#include <algorithm>
#include <utility>

#include "proto/boundary/cuda/driver_uuid.h"

namespace arraybridge::daemon {

using cuda::ContextGuard;
using cuda::CUdevice;
using cuda::Driver;

namespace {

// Refuses the kinds of handles that the GPU supports but the configuration leaves out.
void RefuseUnlisted(const GpuTerms& terms, CudaGpu::Refusals& refusals) {
  constexpr char kUnlisted[] = "memory.cuda.kinds, or this GPU's own table, does not list it";
  const auto is_listed = [&](HandleKind kind) { return std::ranges::find(terms.kinds, kind) != terms.kinds.end(); };
  const auto refuse = [&](std::string& why, HandleKind kind) {
    if (!why.empty() || is_listed(kind)) return;
    why = kUnlisted;
    refusals.unlisted.push_back(kind);
  };
  refuse(refusals.vmm, HandleKind::kCudaVmm);
  refuse(refusals.ipc, HandleKind::kCudaIpc);
}

// `device` has its ordinal; Describe fills in its UUID.
Result<std::shared_ptr<CudaGpu>> Describe(const std::shared_ptr<const Driver>& driver, Device& device,
                                          const GpuTable& table, const Platform& platform) {
  CUdevice ordinal = 0;
  AB_RETURN_IF_ERROR(driver->Check(driver->DeviceGet(&ordinal, device.id), "cuDeviceGet"));
  AB_ASSIGN_OR_RETURN(auto uuid, cuda::UuidOf(*driver, ordinal));
  device.uuid = std::move(uuid);
  size_t bytes = 0;
  AB_RETURN_IF_ERROR(driver->Check(driver->DeviceTotalMem(&bytes, ordinal), "cuDeviceTotalMem"));
  const GpuTerms& terms = table.Of(device.uuid);
  const uint64_t percent = terms.capacity_percent;
  CudaGpu::Refusals refusals{cuda::RefusalsOf(*driver, ordinal, platform), {}};
  RefuseUnlisted(terms, refusals);
  size_t granularity = 0;
  if (refusals.vmm.empty()) {
    const cuda::CUmemAllocationProp properties = CudaGpu::ShareableMemoryOf(ordinal);
    const Status answered = driver->Check(
        driver->MemGetAllocationGranularity(&granularity, &properties, cuda::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "cuMemGetAllocationGranularity");
    if (!answered.ok()) refusals.vmm = answered.message();
    if (answered.ok() && granularity == 0) refusals.vmm = "the driver reports no granularity";
  }
  if (!refusals.vmm.empty()) granularity = 0;
  return std::make_shared<CudaGpu>(driver, ordinal, device, std::move(refusals), granularity,
                                   bytes / 100 * percent + bytes % 100 * percent / 100);
}

}  // namespace

cuda::CUmemAllocationProp CudaGpu::ShareableMemoryOf(CUdevice ordinal) {
  cuda::CUmemAllocationProp properties{};
  properties.type = cuda::CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = cuda::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {cuda::CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  return properties;
}

CudaGpu::CudaGpu(std::shared_ptr<const Driver> driver, CUdevice ordinal, Device device, Refusals refusals,
                 uint64_t granularity, uint64_t capacity_bytes)
    : driver_(std::move(driver)),
      ordinal_(ordinal),
      device_(std::move(device)),
      refusals_(std::move(refusals)),
      granularity_(granularity),
      capacity_(std::make_shared<Capacity>(device_.uuid, capacity_bytes)) {}

CudaGpu::~CudaGpu() {
  if (context_ == nullptr || lost_.load() || leaving_.load())
    return;  // the driver destroys the context when this process exits
  if (stream_ != nullptr) {
    if (const auto inside = ContextGuard::Enter(*driver_, context_); inside.ok()) driver_->StreamDestroy(stream_);
  }
  driver_->DevicePrimaryCtxRelease(ordinal_);
}

std::string CudaGpu::driver_version() const { return cuda::Dotted(driver_->version); }

Result<ContextGuard> CudaGpu::PushContext() const {
  AB_RETURN_IF_ERROR(CheckServing());
  const MutexLock lock(mutex_);
  if (context_ == nullptr) {
    AB_RETURN_IF_ERROR(
        Note(driver_->Check(driver_->DevicePrimaryCtxRetain(&context_, ordinal_), "cuDevicePrimaryCtxRetain")));
  }
  auto inside = ContextGuard::Enter(*driver_, context_);
  if (!inside.ok()) return Note(inside.status());
  return inside;
}

Status CudaGpu::Zero(cuda::CUdeviceptr address, uint64_t bytes) const {
  const MutexLock lock(mutex_);
  if (stream_ == nullptr) {
    AB_RETURN_IF_ERROR(
        Note(driver_->Check(driver_->StreamCreate(&stream_, cuda::kStreamNonBlocking), "cuStreamCreate")));
  }
  AB_RETURN_IF_ERROR(Note(driver_->Check(driver_->MemsetD8Async(address, 0, bytes, stream_), "cuMemsetD8Async")));
  Status done = Note(driver_->Check(driver_->StreamSynchronize(stream_), "cuStreamSynchronize"));
  if (!done.ok()) driver_->CtxSynchronize();  // the bytes are freed next, so no kernel may still write them
  return done;
}

Status CudaGpu::CheckServing() const {
  if (!lost_.load()) return Ok();
  const MutexLock lock(lost_mutex_);
  return Unavailable("device ", device_.uuid, " is out of service since a CUDA call failed permanently: ", why_lost_)
      .Because("DEVICE_LOST");
}

Status CudaGpu::Note(Status status) const {
  if (!cuda::IsSticky(status) || lost_.load()) return status;
  // The lock is held during the callback, so that a caller that removes the callback knows that it is not running.
  const MutexLock lock(lost_mutex_);
  if (lost_.load()) return status;
  why_lost_ = status.message();
  lost_.store(true);
  if (when_lost_) std::exchange(when_lost_, nullptr)();
  return status;
}

void CudaGpu::WhenLost(std::function<void()> callback) {
  const MutexLock lock(lost_mutex_);
  when_lost_ = std::move(callback);
  if (when_lost_ && lost_.load()) std::exchange(when_lost_, nullptr)();
}

Result<FoundGpus> FindCudaGpus(const std::string& path, const GpuTable& terms, const Platform& platform) {
  AB_ASSIGN_OR_RETURN(const Driver loaded, Driver::Load(path));
  const auto driver = std::make_shared<const Driver>(loaded);
  int count = 0;
  AB_RETURN_IF_ERROR(driver->Check(driver->DeviceGetCount(&count), "cuDeviceGetCount"));
  FoundGpus found;
  for (int index = 0; index < count; ++index) {
    Device device{kDeviceCuda, index, {}};
    auto gpu = Describe(driver, device, terms, platform);
    if (gpu.ok()) {
      found.all.push_back(*std::move(gpu));
    } else {
      found.broken.push_back({std::move(device), gpu.status()});
    }
  }
  return found;
}

}  // namespace arraybridge::daemon
