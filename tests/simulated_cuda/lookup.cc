// SPDX-License-Identifier: Apache-2.0
// Looks up calls and errors by name.
#include <cstring>
#include <map>

#include "tests/simulated_cuda/calls.h"
#include "tests/simulated_cuda/process.h"
#include "tests/simulated_cuda/violation.h"

namespace arraybridge::simulated {

#define SIM_OLD_CALL(name) \
  SIM_API name();          \
  SIM_API name() { Violation(__func__, "the interface of before CUDA 4; the current one has another version"); }
SIM_OLD_CALLS(SIM_OLD_CALL)
#undef SIM_OLD_CALL

namespace {

struct Row {
  const char* name;
  int version;
  void* call;
};

constexpr int kOldVersion = 2000;

const Row kRows[] = {
#define SIM_ROW(name, version, suffix, need, parameters) \
  {"cu" #name, version, reinterpret_cast<void*>(&cu##name##suffix)},
    AB_DRIVER_CALLS(SIM_ROW)
#undef SIM_ROW
#define SIM_ROW(base, version, exported, parameters) {#base, version, reinterpret_cast<void*>(&exported)},
        SIM_GUEST_CALLS(SIM_ROW) SIM_KERNEL_CALLS(SIM_ROW)
#undef SIM_ROW
#define SIM_ROW(name) {#name, kOldVersion, reinterpret_cast<void*>(&name)},
            SIM_OLD_CALLS(SIM_ROW)
#undef SIM_ROW
};

#define SIM_NAME(name) \
  { cuda::name, #name }
const std::map<CUresult, const char*>& ErrorNames() {
  static const std::map<CUresult, const char*> names = {
      SIM_NAME(CUDA_SUCCESS),
      SIM_NAME(CUDA_ERROR_INVALID_VALUE),
      SIM_NAME(CUDA_ERROR_OUT_OF_MEMORY),
      SIM_NAME(CUDA_ERROR_NOT_INITIALIZED),
      SIM_NAME(CUDA_ERROR_DEINITIALIZED),
      SIM_NAME(CUDA_ERROR_STUB_LIBRARY),
      SIM_NAME(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER),
      SIM_NAME(CUDA_ERROR_DEVICE_UNAVAILABLE),
      SIM_NAME(CUDA_ERROR_NO_DEVICE),
      SIM_NAME(CUDA_ERROR_INVALID_DEVICE),
      SIM_NAME(CUDA_ERROR_INVALID_CONTEXT),
      {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
      {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX"},
      SIM_NAME(CUDA_ERROR_MAP_FAILED),
      SIM_NAME(CUDA_ERROR_ALREADY_MAPPED),
      SIM_NAME(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED),
      SIM_NAME(CUDA_ERROR_CONTAINED),
      SIM_NAME(CUDA_ERROR_OPERATING_SYSTEM),
      SIM_NAME(CUDA_ERROR_INVALID_HANDLE),
      SIM_NAME(CUDA_ERROR_NOT_FOUND),
      SIM_NAME(CUDA_ERROR_NOT_READY),
      SIM_NAME(CUDA_ERROR_ILLEGAL_ADDRESS),
      SIM_NAME(CUDA_ERROR_LAUNCH_TIMEOUT),
      SIM_NAME(CUDA_ERROR_CONTEXT_IS_DESTROYED),
      SIM_NAME(CUDA_ERROR_ASSERT),
      SIM_NAME(CUDA_ERROR_TOO_MANY_PEERS),
      SIM_NAME(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
      SIM_NAME(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
      SIM_NAME(CUDA_ERROR_HARDWARE_STACK_ERROR),
      SIM_NAME(CUDA_ERROR_ILLEGAL_INSTRUCTION),
      SIM_NAME(CUDA_ERROR_MISALIGNED_ADDRESS),
      SIM_NAME(CUDA_ERROR_INVALID_ADDRESS_SPACE),
      SIM_NAME(CUDA_ERROR_INVALID_PC),
      SIM_NAME(CUDA_ERROR_LAUNCH_FAILED),
      SIM_NAME(CUDA_ERROR_TENSOR_MEMORY_LEAK),
      SIM_NAME(CUDA_ERROR_NOT_PERMITTED),
      SIM_NAME(CUDA_ERROR_NOT_SUPPORTED),
      SIM_NAME(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH),
      SIM_NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
      SIM_NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
      SIM_NAME(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
      SIM_NAME(CUDA_ERROR_CAPTURED_EVENT),
      SIM_NAME(CUDA_ERROR_EXTERNAL_DEVICE),
      SIM_NAME(CUDA_ERROR_UNKNOWN),
  };
  return names;
}
#undef SIM_NAME

CUresult NameOf(CUresult result, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = ErrorNames().find(result);
  *name = found == ErrorNames().end() ? nullptr : found->second;
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

SIM_API cuGetErrorName(CUresult result, const char** name) { return NameOf(result, name); }

SIM_API cuGetErrorString(CUresult result, const char** text) { return NameOf(result, text); }

// Finds the newest interface of that name whose version is at most `version`.
SIM_API cuGetProcAddress_v2(const char* name, void** found, int version, uint64_t flags,
                            CUdriverProcAddressQueryResult* why) {
  const Call call(__func__, Needs::kNothing);
  if (call.refused()) return call.refused();
  const int own = call.process.config.version;
  if (name == nullptr || found == nullptr || flags > 2 || version > own) return CUDA_ERROR_INVALID_VALUE;
  *found = nullptr;
  bool known = false;
  int best = -1;
  for (const Row& row : kRows) {
    if (std::strcmp(row.name, name) != 0 || row.version > own) continue;
    known = true;
    if (row.version > version || row.version <= best) continue;
    best = row.version;
    *found = row.call;
  }
  if (why == nullptr) return CUDA_SUCCESS;
  *why = *found != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
         : known           ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                           : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}

SIM_API cuGetProcAddress(const char* name, void** found, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, found, version, flags, nullptr);
}

}  // namespace arraybridge::simulated
