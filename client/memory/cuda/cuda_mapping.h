// SPDX-License-Identifier: Apache-2.0
// A CudaMapping is a mapped block of GPU memory, for both kinds of handles. The object that it holds unmaps the block.
#pragma once

#include <memory>
#include <utility>

#include "client/memory/cuda/cuda_copy.h"
#include "client/memory/cuda/cuda_device_event.h"
#include "client/memory/memory_mapper.h"

namespace arraybridge {

class CudaMapping final : public Mapping {
 public:
  // `memory` unmaps when it is destroyed, without a query. `device` is local.
  CudaMapping(const CudaDevices& devices, std::shared_ptr<const void> memory, std::byte* data, uint64_t size,
              Device device)
      : devices_(devices), memory_(std::move(memory)), data_(data), size_(size), device_(std::move(device)) {}
  ~CudaMapping() override {
    if (!idle_) ReleaseAfterWork(devices_, device_.id, std::move(memory_));
  }
  CudaMapping(const CudaMapping&) = delete;
  CudaMapping& operator=(const CudaMapping&) = delete;

  std::byte* data() const override { return data_; }
  uint64_t size() const override { return size_; }
  Status CopyFrom(const View& source, uint64_t offset) override {
    AB_RETURN_IF_ERROR(CheckFits(source, offset));
    return CopyOverDevice(source, data_ + offset, device_);
  }
  Result<bool> QueueCopyFrom(const View& source, uint64_t offset) override {
    AB_RETURN_IF_ERROR(CheckFits(source, offset));
    return QueueCopy(source, data_ + offset, device_);
  }
  std::shared_ptr<DeviceEvent> Now() override { return DeviceEventOf(devices_, device_.id); }
  void NoteIdle() override { idle_ = true; }
  // CUDA does not work in a forked child: it can neither write nor unmap.
  void Detach() noexcept override {}

 private:
  const CudaDevices& devices_;
  std::shared_ptr<const void> memory_;
  std::byte* const data_;
  const uint64_t size_;
  const Device device_;
  bool idle_ = false;
};

}  // namespace arraybridge
