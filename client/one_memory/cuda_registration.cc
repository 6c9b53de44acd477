// SPDX-License-Identifier: Apache-2.0
#include "client/one_memory/cuda_registration.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "client/memory/cuda/cuda_device_event.h"
#include "client/one_memory/host_registrations.h"
#include "proto/boundary/explained_error.h"
#include "proto/boundary/one_memory/driver_reach.h"

namespace arraybridge {
namespace {

constexpr uint32_t kForReaders = cuda::kMemHostRegisterDeviceMap | cuda::kMemHostRegisterReadOnly;

Status CheckReached(const CudaDevices& devices, int32_t ordinal) {
  cuda::CUdevice device = 0;
  AB_RETURN_IF_ERROR(devices.driver().Check(devices.driver().DeviceGet(&device, ordinal), "cuDeviceGet"));
  const HostReach reach = cuda::ReachOf(devices.driver(), device);
  if (reach.kind != HostReach::Kind::kNone) return Ok();
  return Unimplemented("cuda:", ordinal, " ", TextOf(reach)).Because("HOST_NOT_REACHED");
}

}  // namespace

Result<std::shared_ptr<HostRegistration>> HostRegistration::Of(const CudaDevices& devices, int32_t ordinal,
                                                               ReadArena& arena) {
  if (auto kept = arena.kept.Find(ordinal)) return std::static_pointer_cast<HostRegistration>(std::move(kept));
  AB_RETURN_IF_ERROR(CheckReached(devices, ordinal));
  HostRegistrations& all = HostRegistrations::OfThisProcess();
  AB_RETURN_IF_ERROR(all.Begin());
  std::shared_ptr<HostRegistration> made(new HostRegistration(devices, ordinal, arena));
  AB_RETURN_IF_ERROR(made->Register(arena.handle.descriptor.get()));
  all.Add(ordinal, made->device_, made->size_, made);
  return std::static_pointer_cast<HostRegistration>(arena.kept.Add(ordinal, made));
}

Status HostRegistration::Register(int descriptor) {
  void* const base = ::mmap(nullptr, size(), PROT_READ, MAP_SHARED, descriptor, 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    return ResourceExhausted("mapping ", size(), " bytes of shared memory: ", ExplainedError(error, "this process"));
  }
  base_ = base;
  // Fails if the kernel disables huge pages for shared memory; then ordinary pages serve.
  ::madvise(base_, size(), MADV_HUGEPAGE);
  AB_ASSIGN_OR_RETURN(const auto inside, devices_.Enter(ordinal_));
  const cuda::Driver& driver = devices_.driver();
  AB_RETURN_IF_ERROR(driver.Check(driver.MemHostRegister(base_, size(), kForReaders), "cuMemHostRegister", size(),
                                  " bytes of shared memory"));
  registered_ = true;
  cuda::CUdeviceptr device = 0;
  AB_RETURN_IF_ERROR(
      driver.Check(driver.MemHostGetDevicePointer(&device, base_, 0), "cuMemHostGetDevicePointer", size(), " bytes"));
  device_ = reinterpret_cast<std::byte*>(device);
  return Ok();
}

HostRegistration::~HostRegistration() {
  HostRegistrations::OfThisProcess().End(ordinal_, device_);
  if (base_ == nullptr) return;
  // In a forked child CUDA does not work, and the registration is the parent's. If the driver fails to end it, the
  // memory stays mapped: later memory at this address would be taken for it.
  if (registered_ && CudaDevices::IfUsed() != nullptr) {
    const auto inside = devices_.Enter(ordinal_);
    if (!inside.ok() || devices_.driver().MemHostUnregister(base_) != cuda::CUDA_SUCCESS) return;
  }
  ::munmap(base_, size());
}

Status HostRegistration::CopyFrom(const View& /*source*/, uint64_t /*offset*/) {
  return Unimplemented("a share that a GPU reads in host memory cannot be written");
}

std::shared_ptr<DeviceEvent> HostRegistration::Now() { return DeviceEventOf(devices_, ordinal_); }

std::byte* HostRegistration::HostAddressOf(int32_t ordinal, const void* address, uint64_t bytes) {
  const auto* const first = static_cast<const std::byte*>(address);
  const auto found = HostRegistrations::OfThisProcess().FindAt(ordinal, first);
  if (found == nullptr) return nullptr;
  const auto offset = static_cast<uint64_t>(first - found->device_);
  return bytes <= found->size() - offset ? found->host_ + offset : nullptr;
}

uint64_t HostRegistration::Living() { return HostRegistrations::OfThisProcess().living(); }

}  // namespace arraybridge
