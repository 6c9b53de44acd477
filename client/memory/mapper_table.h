// The MapperTable holds a mapper for each kind of handle that this process can open, and finds the one for a handle.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/memory/memory_mapper.h"

namespace arraybridge {

// Thread-safe: it never changes.
class MapperTable {
 public:
  explicit MapperTable(std::vector<std::unique_ptr<MemoryMapper>> mappers, std::string cuda_driver = {})
      : mappers_(std::move(mappers)), cuda_driver_(std::move(cuda_driver)) {}
  // Host memory; and what GPUs share if their driver's library (at `cuda_driver`, empty: libcuda.so.1) is here. Loads
  // that, and initialises nothing: a process without GPU arrays pays for no GPU.
  static std::shared_ptr<const MapperTable> OfThisProcess(const std::string& cuda_driver);

  std::vector<HandleKind> kinds() const;
  // The driver's library: its path, or empty.
  const std::string& cuda_driver() const { return cuda_driver_; }
  // UNIMPLEMENTED: none for this kind.
  Result<MemoryMapper*> Of(HandleKind kind) const;
  // The device as this process numbers it. FAILED_PRECONDITION: not visible here. UNAVAILABLE: no driver.
  Result<Device> Local(const Device& device) const;

 private:
  const std::vector<std::unique_ptr<MemoryMapper>> mappers_;
  const std::string cuda_driver_;
};

}  // namespace arraybridge
