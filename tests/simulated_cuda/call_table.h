// The one table of calls: X(base name, version, exported name, parameters). It declares them and feeds
// cuGetProcAddress; every other name is unknown, which real clients accept.
#pragma once

#define SIM_CALLS(X)                                                                                                   \
  X(cuInit, 2000, cuInit, (unsigned int flags))                                                                        \
  X(cuDriverGetVersion, 2020, cuDriverGetVersion, (int* version))                                                      \
  X(cuGetErrorName, 6000, cuGetErrorName, (CUresult result, const char** name))                                        \
  X(cuGetErrorString, 6000, cuGetErrorString, (CUresult result, const char** text))                                    \
  X(cuDeviceGet, 2000, cuDeviceGet, (CUdevice * device, int ordinal))                                                  \
  X(cuDeviceGetCount, 2000, cuDeviceGetCount, (int* count))                                                            \
  X(cuDeviceGetName, 2000, cuDeviceGetName, (char* name, int size, CUdevice device))                                   \
  X(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                                      \
  X(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute, (int* value, CUdevice_attribute attribute, CUdevice device))     \
  X(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                                    \
  X(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer, (int* can, CUdevice device, CUdevice peer))                    \
  X(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                  \
  X(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                 \
  X(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int* flags, int* active)) \
  X(cuCtxSetCurrent, 4000, cuCtxSetCurrent, (CUcontext context))                                                       \
  X(cuCtxGetCurrent, 4000, cuCtxGetCurrent, (CUcontext * context))                                                     \
  X(cuCtxSynchronize, 2000, cuCtxSynchronize, ())                                                                      \
  X(cuCtxRecordEvent, 12050, cuCtxRecordEvent, (CUcontext context, CUevent event))                                     \
  X(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))         \
  X(cuMemGetInfo, 3020, cuMemGetInfo_v2, (size_t * free, size_t * total))                                              \
  X(cuMemAlloc, 3020, cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))                                            \
  X(cuMemFree, 3020, cuMemFree_v2, (CUdeviceptr address))                                                              \
  X(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t * bytes, CUdeviceptr address))    \
  X(cuIpcGetMemHandle, 4010, cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr address))                        \
  X(cuIpcOpenMemHandle, 11000, cuIpcOpenMemHandle_v2,                                                                  \
    (CUdeviceptr * address, CUipcMemHandle handle, unsigned int flags))                                                \
  X(cuIpcCloseMemHandle, 4010, cuIpcCloseMemHandle, (CUdeviceptr address))                                             \
  X(cuIpcGetEventHandle, 4010, cuIpcGetEventHandle, (CUipcEventHandle * handle, CUevent event))                        \
  X(cuIpcOpenEventHandle, 4010, cuIpcOpenEventHandle, (CUevent * event, CUipcEventHandle handle))                      \
  X(cuEventCreate, 2000, cuEventCreate, (CUevent * event, unsigned int flags))                                         \
  X(cuEventRecord, 2000, cuEventRecord, (CUevent event, CUstream stream))                                              \
  X(cuEventQuery, 2000, cuEventQuery, (CUevent event))                                                                 \
  X(cuEventSynchronize, 2000, cuEventSynchronize, (CUevent event))                                                     \
  X(cuEventDestroy, 4000, cuEventDestroy_v2, (CUevent event))                                                          \
  X(cuStreamCreate, 2000, cuStreamCreate, (CUstream * stream, unsigned int flags))                                     \
  X(cuStreamDestroy, 4000, cuStreamDestroy_v2, (CUstream stream))                                                      \
  X(cuStreamSynchronize, 2000, cuStreamSynchronize, (CUstream stream))                                                 \
  X(cuStreamIsCapturing, 10000, cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * status))                \
  X(cuStreamWaitEvent, 3020, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags))                  \
  X(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))  \
  X(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t bytes, CUstream stream))        \
  X(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))  \
  X(cuMemcpyAsync, 4000, cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))             \
  X(cuMemsetD8Async, 3020, cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream))      \
  X(cuMemHostAlloc, 2020, cuMemHostAlloc, (void** address, size_t bytes, unsigned int flags))                          \
  X(cuMemFreeHost, 2000, cuMemFreeHost, (void* address))                                                               \
  X(cuMemHostRegister, 6050, cuMemHostRegister_v2, (void* address, size_t bytes, unsigned int flags))                  \
  X(cuMemHostUnregister, 4000, cuMemHostUnregister, (void* address))                                                   \
  X(cuMemGetAllocationGranularity, 10020, cuMemGetAllocationGranularity,                                               \
    (size_t * bytes, const CUmemAllocationProp* properties, CUmemAllocationGranularity_flags option))                  \
  X(cuMemCreate, 10020, cuMemCreate,                                                                                   \
    (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp* properties,                       \
     unsigned long long flags))                                                                                        \
  X(cuMemRelease, 10020, cuMemRelease, (CUmemGenericAllocationHandle handle))                                          \
  X(cuMemRetainAllocationHandle, 11000, cuMemRetainAllocationHandle,                                                   \
    (CUmemGenericAllocationHandle * handle, void* address))                                                            \
  X(cuMemGetAllocationPropertiesFromHandle, 10020, cuMemGetAllocationPropertiesFromHandle,                             \
    (CUmemAllocationProp * properties, CUmemGenericAllocationHandle handle))                                           \
  X(cuMemExportToShareableHandle, 10020, cuMemExportToShareableHandle,                                                 \
    (void* shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags))  \
  X(cuMemImportFromShareableHandle, 10020, cuMemImportFromShareableHandle,                                             \
    (CUmemGenericAllocationHandle * handle, void* shareable, CUmemAllocationHandleType type))                          \
  X(cuMemAddressReserve, 10020, cuMemAddressReserve,                                                                   \
    (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags))               \
  X(cuMemAddressFree, 10020, cuMemAddressFree, (CUdeviceptr address, size_t bytes))                                    \
  X(cuMemMap, 10020, cuMemMap,                                                                                         \
    (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)) \
  X(cuMemSetAccess, 10020, cuMemSetAccess,                                                                             \
    (CUdeviceptr address, size_t bytes, const CUmemAccessDesc* description, size_t count))                             \
  X(cuMemUnmap, 10020, cuMemUnmap, (CUdeviceptr address, size_t bytes))                                                \
  X(cuPointerGetAttribute, 4000, cuPointerGetAttribute,                                                                \
    (void* value, CUpointer_attribute attribute, CUdeviceptr address))                                                 \
  X(cuPointerGetAttributes, 7000, cuPointerGetAttributes,                                                              \
    (unsigned int count, CUpointer_attribute* attributes, void** values, CUdeviceptr address))

// What only real frameworks call.
#define SIM_GUEST_CALLS(X)                                                                                       \
  X(cuDeviceGetUuid, 9020, cuDeviceGetUuid, (CUuuid * uuid, CUdevice device))                                    \
  X(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId, (char* text, int size, CUdevice device))                     \
  X(cuDeviceComputeCapability, 2000, cuDeviceComputeCapability, (int* major, int* minor, CUdevice device))       \
  X(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned int flags))     \
  X(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2, (CUcontext context))                                            \
  X(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2, (CUcontext * context))                                            \
  X(cuCtxGetDevice, 2000, cuCtxGetDevice, (CUdevice * device))                                                   \
  X(cuCtxGetDevice, 13000, cuCtxGetDevice_v2, (CUdevice * device, CUcontext context))                            \
  X(cuCtxGetApiVersion, 3020, cuCtxGetApiVersion, (CUcontext context, unsigned int* version))                    \
  X(cuCtxGetFlags, 7000, cuCtxGetFlags, (unsigned int* flags))                                                   \
  X(cuCtxGetId, 12000, cuCtxGetId, (CUcontext context, unsigned long long* id))                                  \
  X(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange, (int* least, int* greatest))                 \
  X(cuCtxGetLimit, 3010, cuCtxGetLimit, (size_t * value, unsigned int limit))                                    \
  X(cuCtxSynchronize, 13000, cuCtxSynchronize_v2, (CUcontext context))                                           \
  X(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority,                                                \
    (CUstream * stream, unsigned int flags, int priority))                                                       \
  X(cuStreamQuery, 2000, cuStreamQuery, (CUstream stream))                                                       \
  X(cuStreamGetCtx, 9020, cuStreamGetCtx, (CUstream stream, CUcontext * context))                                \
  X(cuStreamGetDevice, 12080, cuStreamGetDevice, (CUstream stream, CUdevice * device))                           \
  X(cuStreamGetPriority, 5050, cuStreamGetPriority, (CUstream stream, int* priority))                            \
  X(cuStreamGetFlags, 5050, cuStreamGetFlags, (CUstream stream, unsigned int* flags))                            \
  X(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))           \
  X(cuStreamEndCapture, 10000, cuStreamEndCapture, (CUstream stream, void** graph))                              \
  X(cuEventRecordWithFlags, 11010, cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags)) \
  X(cuMemcpy, 4000, cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                                  \
  X(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2, (CUdeviceptr to, const void* from, size_t bytes))                       \
  X(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2, (void* to, CUdeviceptr from, size_t bytes))                             \
  X(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                       \
  X(cuMemsetD8, 3020, cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, size_t bytes))                        \
  X(cuMemAllocHost, 3020, cuMemAllocHost_v2, (void** address, size_t bytes))                                     \
  X(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2,                                               \
    (CUdeviceptr * device, void* host, unsigned int flags))                                                      \
  X(cuMemGetAccess, 10020, cuMemGetAccess,                                                                       \
    (unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address))                             \
  X(cuGetExportTable, 3000, cuGetExportTable, (const void** table, const CUuuid* id))                            \
  X(cuGetProcAddress, 11030, cuGetProcAddress, (const char* name, void** found, int version, uint64_t flags))    \
  X(cuGetProcAddress, 12000, cuGetProcAddress_v2,                                                                \
    (const char* name, void** found, int version, uint64_t flags, CUdriverProcAddressQueryResult* why))

// Interfaces of before CUDA 4 under the plain names, with 32-bit sizes and addresses: calling one is a violation.
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
