// SPDX-License-Identifier: Apache-2.0
// Loading of modules and libraries, and linking, which joins PTX texts.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tests/simulated_cuda/calls.h"
#include "tests/simulated_cuda/guests/module.h"
#include "tests/simulated_cuda/process.h"

namespace arraybridge::simulated {
namespace {

// The buffer for errors among the options of a call, if there is one.
void WriteErrorLog(unsigned int count, const unsigned int* options, void** values, const std::string& why) {
  char* buffer = nullptr;
  size_t size = 0;
  for (unsigned int i = 0; i < count; ++i) {
    if (options[i] == kJitErrorLogBuffer) buffer = static_cast<char*>(values[i]);
    if (options[i] == kJitErrorLogBufferSize) size = reinterpret_cast<uintptr_t>(values[i]);
  }
  if (buffer != nullptr && size > 0) std::snprintf(buffer, size, "%s", why.c_str());
}

CUresult LoadModule(const char* symbol, CUmodule* module, const void* image, unsigned int count,
                    const unsigned int* options, void** values) {
  Call call(symbol, Needs::kContext);
  if (call.refused()) return call.refused();
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  std::string why;
  auto made = Module::Load(call.process, *call.context(), image, &result, &why);
  if (made == nullptr) {
    std::fprintf(stderr, "simulated_cuda: %s: %s -> %u\n", symbol, why.c_str(), static_cast<unsigned>(result));
    WriteErrorLog(count, options, values, why);
    return result;
  }
  *module = reinterpret_cast<CUmodule>(made.get());
  call.process.modules[*module] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult UnloadModule(const char* symbol, CUmodule module) {
  Call call(symbol);
  if (call.refused()) return call.refused();
  const auto found = call.process.modules.find(module);
  if (found == call.process.modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  found->second->Unload(call.process);
  call.process.modules.erase(found);
  return CUDA_SUCCESS;
}

Module* FindModule(Process& process, CUmodule module) {
  const auto found = process.modules.find(module);
  return found == process.modules.end() ? nullptr : found->second.get();
}

CUresult GetFunction(const char* symbol, CUfunction* function, CUmodule module, const char* name) {
  const Call call(symbol);
  if (call.refused()) return call.refused();
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Module* const found = FindModule(call.process, module);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  ModuleFunction* const known = found->Find(name);
  if (known == nullptr) return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<CUfunction>(known);
  return CUDA_SUCCESS;
}

CUresult GetVariable(const char* symbol, CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
  const Call call(symbol);
  if (call.refused()) return call.refused();
  const Module* const found = FindModule(call.process, module);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ptx::Variable* const variable = name == nullptr ? nullptr : found->Variable(name);
  if (variable == nullptr) return name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
  if (address != nullptr) *address = variable->address;
  if (bytes != nullptr) *bytes = variable->bytes;
  return CUDA_SUCCESS;
}

CUresult Count(const char* symbol, unsigned int* count, CUmodule module) {
  const Call call(symbol);
  if (call.refused()) return call.refused();
  const Module* const found = FindModule(call.process, module);
  if (found == nullptr || count == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned int>(found->functions.size());
  return CUDA_SUCCESS;
}

CUresult Enumerate(const char* symbol, CUfunction* functions, unsigned int count, CUmodule module) {
  const Call call(symbol);
  if (call.refused()) return call.refused();
  Module* const found = FindModule(call.process, module);
  if (found == nullptr || functions == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  unsigned int next = 0;
  for (auto& [name, function] : found->functions) {
    if (next < count) functions[next++] = reinterpret_cast<CUfunction>(&function);
  }
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API cuModuleLoadData(CUmodule* module, const void* image) {
  return LoadModule(__func__, module, image, 0, nullptr, nullptr);
}
SIM_API cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int count, unsigned int* options,
                           void** values) {
  return LoadModule(__func__, module, image, count, options, values);
}
SIM_API cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return LoadModule(__func__, module, image, 0, nullptr, nullptr);
}
SIM_API cuModuleUnload(CUmodule module) { return UnloadModule(__func__, module); }
SIM_API cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return GetFunction(__func__, function, module, name);
}
SIM_API cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
  return GetVariable(__func__, address, bytes, module, name);
}
SIM_API cuModuleGetFunctionCount(unsigned int* count, CUmodule module) { return Count(__func__, count, module); }
SIM_API cuModuleEnumerateFunctions(CUfunction* functions, unsigned int count, CUmodule module) {
  return Enumerate(__func__, functions, count, module);
}
SIM_API cuModuleGetLoadingMode(unsigned int* mode) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = 1;  // eager
  return CUDA_SUCCESS;
}

SIM_API cuLibraryLoadData(CUlibrary* library, const void* image, unsigned int* options, void** values,
                          unsigned int count, unsigned int*, void**, unsigned int) {
  const CUresult result = LoadModule(__func__, library, image, count, options, values);
  if (result != CUDA_SUCCESS) return result;
  Process& process = Process::Get();
  const Lock lock(process.mutex);
  FindModule(process, *library)->library = static_cast<const char*>(image);
  return result;
}
SIM_API cuLibraryUnload(CUlibrary library) { return UnloadModule(__func__, library); }
SIM_API cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  return GetFunction(__func__, kernel, library, name);
}
SIM_API cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (module == nullptr || FindModule(call.process, library) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *module = library;
  return CUDA_SUCCESS;
}
SIM_API cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
  return GetVariable(__func__, address, bytes, library, name);
}
SIM_API cuLibraryGetKernelCount(unsigned int* count, CUlibrary library) { return Count(__func__, count, library); }
SIM_API cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int count, CUlibrary library) {
  return Enumerate(__func__, kernels, count, library);
}

// A linker's result is PTX, too.
SIM_API cuLinkCreate_v2(unsigned int, unsigned int*, void**, CUlinkState* state) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto text = std::make_unique<std::string>();
  *state = reinterpret_cast<CUlinkState>(text.get());
  call.process.links[*state] = std::move(text);
  return CUDA_SUCCESS;
}
SIM_API cuLinkAddData_v2(CUlinkState state, unsigned int type, void* data, size_t bytes, const char*, unsigned int,
                         unsigned int*, void**) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  const auto found = call.process.links.find(state);
  if (found == call.process.links.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (type != kJitInputPtx) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  const std::string_view text(static_cast<const char*>(data), bytes);
  *found->second += text.substr(0, text.find('\0'));
  *found->second += "\n";
  return CUDA_SUCCESS;
}
SIM_API cuLinkAddFile_v2(CUlinkState state, unsigned int type, const char* path, unsigned int count,
                         unsigned int* options, void** values) {
  std::ifstream file(path == nullptr ? "" : path);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::ostringstream text;
  text << file.rdbuf();
  std::string data = text.str();
  return cuLinkAddData_v2(state, type, data.data(), data.size(), path, count, options, values);
}
SIM_API cuLinkComplete(CUlinkState state, void** image, size_t* bytes) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  const auto found = call.process.links.find(state);
  if (found == call.process.links.end() || image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *image = found->second->data();
  if (bytes != nullptr) *bytes = found->second->size() + 1;
  return CUDA_SUCCESS;
}
SIM_API cuLinkDestroy(CUlinkState state) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  return call.process.links.erase(state) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace arraybridge::simulated
