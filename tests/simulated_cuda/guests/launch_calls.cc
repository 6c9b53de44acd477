// SPDX-License-Identifier: Apache-2.0
// Launches of kernels, and questions about them. A launch is work of its stream: it runs when a call waits for it.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/simulated_cuda/calls.h"
#include "tests/simulated_cuda/guests/module.h"
#include "tests/simulated_cuda/process.h"
#include "tests/simulated_cuda/ptx/grid.h"

namespace arraybridge::simulated {
namespace {

constexpr uint32_t kBlockThreadsMax = 1024;
constexpr uint32_t kProcessorThreadsMax = 2048;
constexpr uint32_t kBlocksPerProcessorMax = 32;
constexpr uint32_t kProcessors = 132;
constexpr uint64_t kSharedMax = 232448;  // bytes per block, of which a kernel must ask for more than 49152
constexpr int kVersion = 90;

// Device memory, and pinned host memory, for kernels of one device.
class KernelMemory : public ptx::DeviceMemory {
 public:
  KernelMemory(Process& process, int ordinal) : process_(process), ordinal_(ordinal) {}

  std::byte* Bytes(uint64_t address, uint64_t bytes, bool write) override {
    if (last_ == nullptr || address < last_->base || address - last_->base >= last_->size) {
      last_ = process_.space.Find(address, bytes);
    }
    if (last_ == nullptr) return OnHost(address, bytes, write);
    const CUmemAccess_flags needed = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    if (process_.devices.Physical(ordinal_) == last_->block->device()) {
      return process_.space.Bytes(address, bytes, needed);
    }
    if (last_->kind != RangeKind::kVmm) {
      return process_.config.peers ? process_.space.Bytes(address, bytes, needed) : nullptr;
    }
    const auto rights = last_->access_of_others.find(ordinal_);
    if (rights == last_->access_of_others.end() || (rights->second & needed) != needed) return nullptr;
    return last_->block->bytes() + last_->offset + (address - last_->base);
  }

 private:
  // Registered memory has an address of its own for devices.
  std::byte* OnHost(uint64_t address, uint64_t bytes, bool write) const {
    const auto place = process_.host.Find(address, bytes);
    const bool reached = place.has_value() && place->Allows(ordinal_, write) && place->device() == address;
    return reached ? reinterpret_cast<std::byte*>(place->host) : nullptr;
  }

  Process& process_;
  const int ordinal_;
  const Range* last_ = nullptr;
};

ModuleFunction* FindFunction(Process& process, CUfunction function) {
  auto* const wanted = reinterpret_cast<ModuleFunction*>(function);
  for (const auto& [handle, module] : process.modules) {
    for (auto& [name, known] : module->functions) {
      if (&known == wanted) return wanted;
    }
  }
  return nullptr;
}

// The function in the context of a stream: one of a library is in all contexts, one of a module in its own. Null: it is
// not there.
ModuleFunction* FunctionIn(const void* context, CUfunction function, Call& call) {
  ModuleFunction* const known = FindFunction(call.process, function);
  if (known == nullptr) return nullptr;
  const std::shared_ptr<Module> module = known->module.lock();
  if (&module->context == context) return known;
  if (call.context() != context) return nullptr;
  const std::shared_ptr<Module> there = module->In(call.process, *call.context());
  return there == nullptr ? nullptr : there->Find(known->code->function->name);
}

// The parameters as the kernel sees them. False if the caller's are incomplete.
bool ReadParameters(const ptx::Function& function, void** parameters, void** extra, std::vector<std::byte>* bytes) {
  bytes->resize(function.param_bytes);
  if (parameters != nullptr || extra == nullptr) {
    for (size_t i = 0; i < function.parameters.size(); ++i) {
      if (parameters == nullptr || parameters[i] == nullptr) return false;
      const ptx::Variable& variable = *function.parameters[i].variable;
      std::memcpy(bytes->data() + variable.address, parameters[i], variable.bytes);
    }
    return true;
  }
  const void* buffer = nullptr;
  size_t size = 0;
  for (size_t i = 0; reinterpret_cast<uintptr_t>(extra[i]) != kLaunchBufferEnd; i += 2) {
    const auto kind = reinterpret_cast<uintptr_t>(extra[i]);
    if (kind == kLaunchBufferPointer) buffer = extra[i + 1];
    if (kind == kLaunchBufferSize) size = *static_cast<const size_t*>(extra[i + 1]);
  }
  size = std::min(size, bytes->size());
  if (size > 0 && buffer == nullptr) return false;
  if (size > 0) std::memcpy(bytes->data(), buffer, size);
  return true;
}

bool FitsTheDevice(const ptx::Grid& grid, const ModuleFunction& function) {
  for (const uint32_t count : grid.blocks) {
    if (count == 0) return false;
  }
  const ptx::Dimensions& block = grid.threads;
  const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  if (threads == 0 || threads > kBlockThreadsMax || block[2] > 64) return false;
  if (grid.blocks[1] > 65535 || grid.blocks[2] > 65535 || grid.blocks[0] > 2147483647U) return false;
  return grid.dynamic_shared <= static_cast<uint64_t>(function.max_dynamic_shared);
}

// Runs a launch that was queued.
CUresult RunGrid(Process& process, const Module& module, ptx::Grid grid) {
  ++process.kernels_done;
  KernelMemory memory(process, module.context.ordinal);
  grid.memory = &memory;
  std::string why;
  const CUresult result = ptx::Run(grid, &why);
  if (result == CUDA_SUCCESS) return result;
  std::fprintf(stderr, "simulated_cuda: kernel '%s': %s -> %u\n", grid.code->function->name.c_str(), why.c_str(),
               static_cast<unsigned>(result));
  return result;
}

CUresult Launch(const char* symbol, CUfunction function, const CUlaunchConfig& config, void** parameters,
                void** extra) {
  Call call(symbol, Needs::kContext);
  if (call.refused()) return call.refused();
  const auto stream = call.process.FindStream(symbol, config.stream, call.context());
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  ModuleFunction* const known = FunctionIn(stream->context, function, call);
  if (known == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::shared_ptr<Module> module = known->module.lock();
  if (const CUresult captured = call.process.capture.RefusalToUse(*stream)) return captured;
  if (!known->code->error.empty()) {
    std::fprintf(stderr, "simulated_cuda: kernel '%s': %s -> 801\n", known->code->function->name.c_str(),
                 known->code->error.c_str());
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  ptx::Grid grid{.code = known->code,
                 .blocks = {config.grid[0], config.grid[1], config.grid[2]},
                 .threads = {config.block[0], config.block[1], config.block[2]},
                 .parameters = {},
                 .static_shared = module->program.shared_bytes,
                 .dynamic_shared = config.shared_bytes,
                 .number = call.process.NextId()};
  if (!FitsTheDevice(grid, *known)) return CUDA_ERROR_INVALID_VALUE;
  if (!ReadParameters(*known->code->function, parameters, extra, &grid.parameters)) return CUDA_ERROR_INVALID_VALUE;
  Work work{.symbol = symbol, .run = {}};
  work.run = [&process = call.process, module, grid = std::move(grid)](Lock&) {
    return RunGrid(process, *module, grid);
  };
  call.process.Enqueue(stream, std::move(work));
  return CUDA_SUCCESS;
}

CUresult Attribute(const char* symbol, int* value, int attribute, CUfunction function) {
  const Call call(symbol);
  if (call.refused()) return call.refused();
  const ModuleFunction* const known = FindFunction(call.process, function);
  if (known == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (value == nullptr || attribute < 0 || attribute >= kFunctionAttributes) return CUDA_ERROR_INVALID_VALUE;
  const std::map<int, int> values = {{kFunctionMaxThreads, kBlockThreadsMax},
                                     {kFunctionSharedSize, static_cast<int>(known->code->function->shared_bytes)},
                                     {kFunctionLocalSize, static_cast<int>(known->code->function->local_bytes)},
                                     {kFunctionRegisters, 32},
                                     {kFunctionPtxVersion, kVersion},
                                     {kFunctionBinaryVersion, kVersion},
                                     {kFunctionMaxDynamicShared, known->max_dynamic_shared}};
  const auto found = values.find(attribute);
  *value = found == values.end() ? 0 : found->second;
  return CUDA_SUCCESS;
}

CUresult SetAttribute(const char* symbol, CUfunction function, int attribute, int value) {
  const Call call(symbol);
  if (call.refused()) return call.refused();
  ModuleFunction* const known = FindFunction(call.process, function);
  if (known == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute < 0 || attribute >= kFunctionAttributes) return CUDA_ERROR_INVALID_VALUE;
  if (attribute != kFunctionMaxDynamicShared) return CUDA_SUCCESS;
  const uint64_t fixed = known->code->function->shared_bytes;
  if (value < 0 || static_cast<uint64_t>(value) + fixed > kSharedMax) return CUDA_ERROR_INVALID_VALUE;
  known->max_dynamic_shared = value;
  return CUDA_SUCCESS;
}

CUresult Name(const char* symbol, const char** name, CUfunction function) {
  const Call call(symbol);
  if (call.refused()) return call.refused();
  const ModuleFunction* const known = FindFunction(call.process, function);
  if (known == nullptr || name == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = known->code->function->name.c_str();
  return CUDA_SUCCESS;
}

CUresult ParameterInfo(const char* symbol, CUfunction function, size_t index, size_t* offset, size_t* bytes) {
  const Call call(symbol);
  if (call.refused()) return call.refused();
  const ModuleFunction* const known = FindFunction(call.process, function);
  if (known == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto& parameters = known->code->function->parameters;
  if (index >= parameters.size() || offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *offset = parameters[index].variable->address;
  if (bytes != nullptr) *bytes = parameters[index].variable->bytes;
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                       unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                       CUstream stream, void** parameters, void** extra) {
  const CUlaunchConfig config{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream, nullptr, 0};
  return Launch(__func__, function, config, parameters, extra);
}
SIM_API cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Launch(__func__, function, *config, parameters, extra);
}
SIM_API cuLaunchCooperativeKernel(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                                  unsigned int, unsigned int, CUstream, void**) {
  const Call call(__func__, Needs::kContext);
  return call.refused() ? call.refused() : CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API cuFuncGetAttribute(int* value, int attribute, CUfunction function) {
  return Attribute(__func__, value, attribute, function);
}
SIM_API cuKernelGetAttribute(int* value, int attribute, CUkernel kernel, CUdevice) {
  return Attribute(__func__, value, attribute, kernel);
}
SIM_API cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  return SetAttribute(__func__, function, attribute, value);
}
SIM_API cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice) {
  return SetAttribute(__func__, kernel, attribute, value);
}
SIM_API cuFuncGetName(const char** name, CUfunction function) { return Name(__func__, name, function); }
SIM_API cuKernelGetName(const char** name, CUkernel kernel) { return Name(__func__, name, kernel); }
SIM_API cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* bytes) {
  return ParameterInfo(__func__, function, index, offset, bytes);
}
SIM_API cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* bytes) {
  return ParameterInfo(__func__, kernel, index, offset, bytes);
}
SIM_API cuFuncSetCacheConfig(CUfunction function, unsigned int) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  return FindFunction(call.process, function) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
SIM_API cuFuncGetModule(CUmodule* module, CUfunction function) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  const ModuleFunction* const known = FindFunction(call.process, function);
  if (known == nullptr || module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *module = reinterpret_cast<CUmodule>(known->module.lock().get());
  return CUDA_SUCCESS;
}
SIM_API cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (function == nullptr || FindFunction(call.process, kernel) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *function = kernel;
  return CUDA_SUCCESS;
}
SIM_API cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) { return cuFuncGetModule(library, kernel); }

SIM_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads, size_t) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (blocks == nullptr || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (FindFunction(call.process, function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *blocks = static_cast<int>(std::min(kProcessorThreadsMax / static_cast<uint32_t>(threads), kBlocksPerProcessorMax));
  return CUDA_SUCCESS;
}
SIM_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int threads,
                                                             size_t shared_bytes, unsigned int) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared_bytes);
}
SIM_API cuOccupancyMaxPotentialBlockSize(int* grid, int* threads, CUfunction function, CUoccupancyB2DSize, size_t,
                                         int limit) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (grid == nullptr || threads == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (FindFunction(call.process, function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto most = static_cast<int>(kBlockThreadsMax);
  *threads = limit > 0 ? std::min(limit, most) : most;
  *grid = static_cast<int>(kProcessors * (kProcessorThreadsMax / static_cast<uint32_t>(*threads)));
  return CUDA_SUCCESS;
}

}  // namespace arraybridge::simulated
