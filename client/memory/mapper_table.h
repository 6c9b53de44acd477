// SPDX-License-Identifier: Apache-2.0
// The MapperTable holds a mapper for each kind of handle that this process can open, and finds the one for a handle.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/memory/memory_mapper.h"

namespace arraybridge {

// Thread-safe, because it never changes.
class MapperTable {
 public:
  explicit MapperTable(std::vector<std::unique_ptr<MemoryMapper>> mappers, std::string cuda_driver = {})
      : mappers_(std::move(mappers)), cuda_driver_(std::move(cuda_driver)) {}
  // Contains the mapper of host memory and, if the driver library (`cuda_driver`, empty: libcuda.so.1) is present,
  // those of GPU memory. Loads the library and initialises nothing: a process without GPU arrays has no cost of a GPU.
  static std::shared_ptr<const MapperTable> OfThisProcess(const std::string& cuda_driver);

  std::vector<HandleKind> kinds() const;
  // The path of the driver library, or empty.
  const std::string& cuda_driver() const { return cuda_driver_; }
  // UNIMPLEMENTED: there is no mapper of this kind.
  Result<MemoryMapper*> Of(HandleKind kind) const;
  // The device with its ordinal in this process. FAILED_PRECONDITION: not visible here. UNAVAILABLE: no driver.
  Result<Device> Local(const Device& device) const;

 private:
  const std::vector<std::unique_ptr<MemoryMapper>> mappers_;
  const std::string cuda_driver_;
};

}  // namespace arraybridge
