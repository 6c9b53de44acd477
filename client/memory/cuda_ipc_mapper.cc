// A process opens each block once: a second opening of the same handle is the first one's address again at best. So the
// openings of this process are known by their 64 bytes, which a freed and allocated anew block never has again, and
// shared by everybody who maps the block.
#include "client/memory/cuda_ipc_mapper.h"

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "client/memory/cuda_mapper.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

using cuda::CUdeviceptr;
using cuda::CUipcMemHandle;
using cuda::Driver;

namespace {

// One opened block.
class IpcMemory {
 public:
  IpcMemory(const CudaDevices& devices, int32_t ordinal, std::string handle)
      : devices_(devices), ordinal_(ordinal), handle_(std::move(handle)) {}
  ~IpcMemory() {
    if (address_ == 0) return;
    const auto inside = devices_.Enter(ordinal_);
    if (!inside.ok()) return;
    if (IsDrained(devices_.driver())) devices_.driver().IpcCloseMemHandle(address_);
  }
  IpcMemory(const IpcMemory&) = delete;
  IpcMemory& operator=(const IpcMemory&) = delete;

  CUdeviceptr address() const { return address_; }

  Status Open(uint64_t bytes) {
    const auto inside = devices_.Enter(ordinal_);
    if (!inside.ok()) return inside.status();
    const Driver& driver = devices_.driver();
    CUipcMemHandle handle{};
    std::memcpy(&handle, handle_.data(), sizeof handle);
    AB_RETURN_IF_ERROR(driver.CheckInput(driver.IpcOpenMemHandle(&address_, handle, cuda::kIpcMemLazyEnablePeerAccess),
                                         "cuIpcOpenMemHandle", bytes,
                                         " bytes, of another process of this PID namespace"));
    return CheckRange(bytes);
  }
  // The block begins where it was opened and holds as much as its owner says.
  Status CheckRange(uint64_t bytes) const {
    const auto inside = devices_.Enter(ordinal_);
    if (!inside.ok()) return inside.status();
    const Driver& driver = devices_.driver();
    CUdeviceptr base = 0;
    size_t size = 0;
    AB_RETURN_IF_ERROR(driver.CheckInput(driver.MemGetAddressRange(&base, &size, address_), "cuMemGetAddressRange"));
    if (base == address_ && size >= bytes) return Ok();
    return FailedPrecondition("the memory has ", size, " bytes, its handle says ", bytes);
  }

 private:
  const CudaDevices& devices_;
  const int32_t ordinal_;
  const std::string handle_;
  CUdeviceptr address_ = 0;
};

// The openings of this process, by their 64 bytes. Thread-safe.
class Openings {
 public:
  // Never destroyed: mappings may be what dies last.
  static Openings& OfThisProcess() {
    static auto* const openings = new Openings;
    return *openings;
  }

  // Whoever lets go last closes.
  Result<std::shared_ptr<const IpcMemory>> Open(const CudaDevices& devices, int32_t ordinal, const Handle& handle) {
    MutexLock lock(mutex_);
    auto found = open_.find(handle.opaque);
    if (found == open_.end()) {
      auto fresh = std::make_unique<IpcMemory>(devices, ordinal, handle.opaque);
      AB_RETURN_IF_ERROR(fresh->Open(handle.arena_size));
      found = open_.emplace(handle.opaque, Entry{std::move(fresh)}).first;
    } else {
      AB_RETURN_IF_ERROR(found->second.memory->CheckRange(handle.arena_size));
    }
    ++found->second.users;
    return std::shared_ptr<const IpcMemory>(found->second.memory.get(),
                                            [this, key = handle.opaque](const IpcMemory*) { LetGo(key); });
  }

 private:
  struct Entry {
    std::unique_ptr<IpcMemory> memory;
    uint64_t users = 0;
  };

  void LetGo(const std::string& key) {
    // In a forked child the openings are the parent's, and the lock may be held for ever.
    if (CudaDevices::IfUsed() == nullptr) return;
    MutexLock lock(mutex_);
    const auto found = open_.find(key);
    if (--found->second.users == 0) open_.erase(found);
  }

  // Held while the driver opens or closes, unlike any other lock of ours: what is just being closed must not be opened.
  Mutex mutex_;
  std::map<std::string, Entry> open_ AB_GUARDED_BY(mutex_);
};

class CudaIpcMapper final : public CudaMapper {
 public:
  using CudaMapper::CudaMapper;

  HandleKind kind() const override { return HandleKind::kCudaIpc; }

 private:
  Status CheckHandle(const Handle& handle) const override {
    if (handle.kind != kind()) return Unimplemented("the handle is not a cudaIpcMemHandle");
    if (handle.opaque.size() == sizeof(CUipcMemHandle)) return Ok();
    return FailedPrecondition("arena ", handle.arena, " came with ", handle.opaque.size(),
                              " bytes where a cudaIpcMemHandle has ", sizeof(CUipcMemHandle));
  }

  Result<Opened> Open(const CudaDevices& devices, const Device& device, const Handle& handle,
                      Access /*access*/) override {
    auto memory = Openings::OfThisProcess().Open(devices, device.id, handle);
    if (!memory.ok()) return memory.status();
    const CUdeviceptr address = (*memory)->address();
    return Opened{*std::move(memory), address};
  }
};

}  // namespace

std::unique_ptr<MemoryMapper> MakeCudaIpcMapper(std::string library) {
  return std::make_unique<CudaIpcMapper>(std::move(library));
}

}  // namespace arraybridge
