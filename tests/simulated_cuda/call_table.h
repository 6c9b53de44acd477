// SPDX-License-Identifier: Apache-2.0
// The calls of the simulated driver in addition to ours (proto/boundary/cuda/driver_symbols.h): X(base name, version,
// exported name, parameters). All other names are unknown, which real clients accept.
#pragma once

// Calls that only real frameworks make.
#define SIM_GUEST_CALLS(X)                                                                                           \
  X(cuDeviceGetUuid, 9020, cuDeviceGetUuid, (CUuuid * uuid, CUdevice device))                                        \
  X(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId, (char* text, int size, CUdevice device))                         \
  X(cuDeviceComputeCapability, 2000, cuDeviceComputeCapability, (int* major, int* minor, CUdevice device))           \
  X(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned int flags))         \
  X(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2, (CUcontext context))                                                \
  X(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2, (CUcontext * context))                                                \
  X(cuCtxGetDevice, 2000, cuCtxGetDevice, (CUdevice * device))                                                       \
  X(cuCtxGetDevice, 13000, cuCtxGetDevice_v2, (CUdevice * device, CUcontext context))                                \
  X(cuCtxGetApiVersion, 3020, cuCtxGetApiVersion, (CUcontext context, unsigned int* version))                        \
  X(cuCtxGetFlags, 7000, cuCtxGetFlags, (unsigned int* flags))                                                       \
  X(cuCtxGetId, 12000, cuCtxGetId, (CUcontext context, unsigned long long* id))                                      \
  X(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange, (int* least, int* greatest))                     \
  X(cuCtxGetLimit, 3010, cuCtxGetLimit, (size_t * value, unsigned int limit))                                        \
  X(cuCtxSynchronize, 13000, cuCtxSynchronize_v2, (CUcontext context))                                               \
  X(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority,                                                    \
    (CUstream * stream, unsigned int flags, int priority))                                                           \
  X(cuStreamQuery, 2000, cuStreamQuery, (CUstream stream))                                                           \
  X(cuStreamGetCtx, 9020, cuStreamGetCtx, (CUstream stream, CUcontext * context))                                    \
  X(cuStreamGetDevice, 12080, cuStreamGetDevice, (CUstream stream, CUdevice * device))                               \
  X(cuStreamGetPriority, 5050, cuStreamGetPriority, (CUstream stream, int* priority))                                \
  X(cuStreamGetFlags, 5050, cuStreamGetFlags, (CUstream stream, unsigned int* flags))                                \
  X(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))               \
  X(cuStreamEndCapture, 10000, cuStreamEndCapture, (CUstream stream, void** graph))                                  \
  X(cuEventRecordWithFlags, 11010, cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags))     \
  X(cuMemcpy, 4000, cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                                      \
  X(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2, (CUdeviceptr to, const void* from, size_t bytes))                           \
  X(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2, (void* to, CUdeviceptr from, size_t bytes))                                 \
  X(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                           \
  X(cuMemcpyPeerAsync, 4000, cuMemcpyPeerAsync,                                                                      \
    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream)) \
  X(cuMemsetD8, 3020, cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, size_t bytes))                            \
  X(cuMemsetD16, 3020, cuMemsetD16_v2, (CUdeviceptr to, unsigned short value, size_t count))                         \
  X(cuMemsetD32, 3020, cuMemsetD32_v2, (CUdeviceptr to, unsigned int value, size_t count))                           \
  X(cuMemsetD16Async, 3020, cuMemsetD16Async, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream)) \
  X(cuMemsetD32Async, 3020, cuMemsetD32Async, (CUdeviceptr to, unsigned int value, size_t count, CUstream stream))   \
  X(cuEventElapsedTime, 2000, cuEventElapsedTime, (float* milliseconds, CUevent begin, CUevent end))                 \
  X(cuEventElapsedTime, 12080, cuEventElapsedTime_v2, (float* milliseconds, CUevent begin, CUevent end))             \
  X(cuLaunchHostFunc, 10000, cuLaunchHostFunc, (CUstream stream, CUhostFn function, void* data))                     \
  X(cuStreamAddCallback, 5000, cuStreamAddCallback,                                                                  \
    (CUstream stream, CUstreamCallback function, void* data, unsigned int flags))                                    \
  X(cuMemAllocHost, 3020, cuMemAllocHost_v2, (void** address, size_t bytes))                                         \
  X(cuMemGetAccess, 10020, cuMemGetAccess,                                                                           \
    (unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address))                                 \
  X(cuGetExportTable, 3000, cuGetExportTable, (const void** table, const CUuuid* id))                                \
  X(cuGetProcAddress, 11030, cuGetProcAddress, (const char* name, void** found, int version, uint64_t flags))        \
  X(cuGetProcAddress, 12000, cuGetProcAddress_v2,                                                                    \
    (const char* name, void** found, int version, uint64_t flags, CUdriverProcAddressQueryResult* why))

// Modules and kernels, which only frameworks use.
#define SIM_KERNEL_CALLS(X)                                                                                           \
  X(cuModuleLoadData, 2000, cuModuleLoadData, (CUmodule * module, const void* image))                                 \
  X(cuModuleLoadDataEx, 2010, cuModuleLoadDataEx,                                                                     \
    (CUmodule * module, const void* image, unsigned int count, unsigned int* options, void** values))                 \
  X(cuModuleLoadFatBinary, 2000, cuModuleLoadFatBinary, (CUmodule * module, const void* image))                       \
  X(cuModuleUnload, 2000, cuModuleUnload, (CUmodule module))                                                          \
  X(cuModuleGetFunction, 2000, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name))       \
  X(cuModuleGetGlobal, 3020, cuModuleGetGlobal_v2,                                                                    \
    (CUdeviceptr * address, size_t * bytes, CUmodule module, const char* name))                                       \
  X(cuModuleGetFunctionCount, 12040, cuModuleGetFunctionCount, (unsigned int* count, CUmodule module))                \
  X(cuModuleEnumerateFunctions, 12040, cuModuleEnumerateFunctions,                                                    \
    (CUfunction * functions, unsigned int count, CUmodule module))                                                    \
  X(cuModuleGetLoadingMode, 11070, cuModuleGetLoadingMode, (unsigned int* mode))                                      \
  X(cuLibraryLoadData, 12000, cuLibraryLoadData,                                                                      \
    (CUlibrary * library, const void* image, unsigned int* options, void** values, unsigned int count,                \
     unsigned int* library_options, void** library_values, unsigned int library_count))                               \
  X(cuLibraryUnload, 12000, cuLibraryUnload, (CUlibrary library))                                                     \
  X(cuLibraryGetKernel, 12000, cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char* name))          \
  X(cuLibraryGetModule, 12000, cuLibraryGetModule, (CUmodule * module, CUlibrary library))                            \
  X(cuLibraryGetGlobal, 12000, cuLibraryGetGlobal,                                                                    \
    (CUdeviceptr * address, size_t * bytes, CUlibrary library, const char* name))                                     \
  X(cuLibraryGetKernelCount, 12040, cuLibraryGetKernelCount, (unsigned int* count, CUlibrary library))                \
  X(cuLibraryEnumerateKernels, 12040, cuLibraryEnumerateKernels,                                                      \
    (CUkernel * kernels, unsigned int count, CUlibrary library))                                                      \
  X(cuLinkCreate, 6050, cuLinkCreate_v2,                                                                              \
    (unsigned int count, unsigned int* options, void** values, CUlinkState* state))                                   \
  X(cuLinkAddData, 6050, cuLinkAddData_v2,                                                                            \
    (CUlinkState state, unsigned int type, void* data, size_t bytes, const char* name, unsigned int count,            \
     unsigned int* options, void** values))                                                                           \
  X(cuLinkAddFile, 6050, cuLinkAddFile_v2,                                                                            \
    (CUlinkState state, unsigned int type, const char* path, unsigned int count, unsigned int* options,               \
     void** values))                                                                                                  \
  X(cuLinkComplete, 5050, cuLinkComplete, (CUlinkState state, void** image, size_t* bytes))                           \
  X(cuLinkDestroy, 5050, cuLinkDestroy, (CUlinkState state))                                                          \
  X(cuLaunchKernel, 4000, cuLaunchKernel,                                                                             \
    (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,        \
     unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void** parameters,       \
     void** extra))                                                                                                   \
  X(cuLaunchKernelEx, 11060, cuLaunchKernelEx,                                                                        \
    (const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra))                             \
  X(cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel,                                                       \
    (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,        \
     unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void** parameters))      \
  X(cuFuncGetAttribute, 2020, cuFuncGetAttribute, (int* value, int attribute, CUfunction function))                   \
  X(cuFuncSetAttribute, 9000, cuFuncSetAttribute, (CUfunction function, int attribute, int value))                    \
  X(cuFuncSetCacheConfig, 3000, cuFuncSetCacheConfig, (CUfunction function, unsigned int config))                     \
  X(cuFuncGetName, 12030, cuFuncGetName, (const char** name, CUfunction function))                                    \
  X(cuFuncGetParamInfo, 12040, cuFuncGetParamInfo,                                                                    \
    (CUfunction function, size_t index, size_t * offset, size_t * bytes))                                             \
  X(cuFuncGetModule, 11000, cuFuncGetModule, (CUmodule * module, CUfunction function))                                \
  X(cuKernelGetAttribute, 12000, cuKernelGetAttribute, (int* value, int attribute, CUkernel kernel, CUdevice device)) \
  X(cuKernelSetAttribute, 12000, cuKernelSetAttribute, (int attribute, int value, CUkernel kernel, CUdevice device))  \
  X(cuKernelGetFunction, 12000, cuKernelGetFunction, (CUfunction * function, CUkernel kernel))                        \
  X(cuKernelGetLibrary, 12050, cuKernelGetLibrary, (CUlibrary * library, CUkernel kernel))                            \
  X(cuKernelGetName, 12030, cuKernelGetName, (const char** name, CUkernel kernel))                                    \
  X(cuKernelGetParamInfo, 12040, cuKernelGetParamInfo,                                                                \
    (CUkernel kernel, size_t index, size_t * offset, size_t * bytes))                                                 \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, cuOccupancyMaxActiveBlocksPerMultiprocessor,                   \
    (int* blocks, CUfunction function, int threads, size_t shared_bytes))                                             \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, \
    (int* blocks, CUfunction function, int threads, size_t shared_bytes, unsigned int flags))                         \
  X(cuOccupancyMaxPotentialBlockSize, 6050, cuOccupancyMaxPotentialBlockSize,                                         \
    (int* grid, int* threads, CUfunction function, CUoccupancyB2DSize shared_of, size_t shared_bytes, int limit))

// Interfaces from before CUDA 4, with 32-bit sizes and addresses, under the plain names: calling one is a violation.
#define SIM_OLD_CALLS(X)  \
  X(cuDeviceTotalMem)     \
  X(cuMemGetInfo)         \
  X(cuMemAlloc)           \
  X(cuMemFree)            \
  X(cuMemGetAddressRange) \
  X(cuMemcpyHtoDAsync)    \
  X(cuMemcpyDtoHAsync)    \
  X(cuMemcpyDtoDAsync)    \
  X(cuIpcOpenMemHandle) X(cuEventDestroy) X(cuStreamDestroy) X(cuDevicePrimaryCtxRelease) X(cuMemHostRegister)
