// SPDX-License-Identifier: Apache-2.0
// The one table of driver calls: X(name, version, suffix, need, parameters).
// `name` is the base name for cuGetProcAddress, without its prefix. `version` introduced the binary interface that we
// use (3020 is CUDA 3.2): a later version returns other signatures, an earlier one 32-bit sizes.
// `suffix` is the rest of the name that the library exports, after the base name. `need` is kRequired, or kOptional for
// a call that stays null if the driver lacks it. Every call returns a CUresult.
#pragma once

// The calls that this project uses. The simulated driver (tests/simulated_cuda) is generated from the same lines.
#define AB_DRIVER_CALLS(X)                                                                                             \
  X(Init, 2000, , kRequired, (unsigned int flags))                                                                     \
  X(DriverGetVersion, 2020, , kRequired, (int* version))                                                               \
  X(GetErrorName, 6000, , kRequired, (CUresult result, const char** name))                                             \
  X(GetErrorString, 6000, , kRequired, (CUresult result, const char** text))                                           \
  X(DeviceGet, 2000, , kRequired, (CUdevice * device, int ordinal))                                                    \
  X(DeviceGetCount, 2000, , kRequired, (int* count))                                                                   \
  X(DeviceGetName, 2000, , kRequired, (char* name, int size, CUdevice device))                                         \
  X(DeviceGetUuid, 11040, _v2, kRequired, (CUuuid * uuid, CUdevice device))                                            \
  X(DeviceGetAttribute, 2000, , kRequired, (int* value, CUdevice_attribute attribute, CUdevice device))                \
  X(DeviceTotalMem, 3020, _v2, kRequired, (size_t * bytes, CUdevice device))                                           \
  X(DeviceCanAccessPeer, 4000, , kRequired, (int* can, CUdevice device, CUdevice peer))                                \
  X(DevicePrimaryCtxRetain, 7000, , kRequired, (CUcontext * context, CUdevice device))                                 \
  X(DevicePrimaryCtxRelease, 11000, _v2, kRequired, (CUdevice device))                                                 \
  X(DevicePrimaryCtxGetState, 7000, , kRequired, (CUdevice device, unsigned int* flags, int* active))                  \
  X(CtxSetCurrent, 4000, , kRequired, (CUcontext context))                                                             \
  X(CtxGetCurrent, 4000, , kRequired, (CUcontext * context))                                                           \
  X(CtxSynchronize, 2000, , kRequired, ())                                                                             \
  X(CtxRecordEvent, 12050, , kOptional, (CUcontext context, CUevent event))                                            \
  X(ThreadExchangeStreamCaptureMode, 10010, , kRequired, (CUstreamCaptureMode * mode))                                 \
  X(MemGetInfo, 3020, _v2, kRequired, (size_t * free, size_t * total))                                                 \
  X(MemAlloc, 3020, _v2, kRequired, (CUdeviceptr * address, size_t bytes))                                             \
  X(MemFree, 3020, _v2, kRequired, (CUdeviceptr address))                                                              \
  X(MemGetAddressRange, 3020, _v2, kRequired, (CUdeviceptr * base, size_t * bytes, CUdeviceptr address))               \
  X(IpcGetMemHandle, 4010, , kRequired, (CUipcMemHandle * handle, CUdeviceptr address))                                \
  X(IpcOpenMemHandle, 11000, _v2, kRequired, (CUdeviceptr * address, CUipcMemHandle handle, unsigned int flags))       \
  X(IpcCloseMemHandle, 4010, , kRequired, (CUdeviceptr address))                                                       \
  X(IpcGetEventHandle, 4010, , kRequired, (CUipcEventHandle * handle, CUevent event))                                  \
  X(IpcOpenEventHandle, 4010, , kRequired, (CUevent * event, CUipcEventHandle handle))                                 \
  X(EventCreate, 2000, , kRequired, (CUevent * event, unsigned int flags))                                             \
  X(EventRecord, 2000, , kRequired, (CUevent event, CUstream stream))                                                  \
  X(EventQuery, 2000, , kRequired, (CUevent event))                                                                    \
  X(EventSynchronize, 2000, , kRequired, (CUevent event))                                                              \
  X(EventDestroy, 4000, _v2, kRequired, (CUevent event))                                                               \
  X(StreamCreate, 2000, , kRequired, (CUstream * stream, unsigned int flags))                                          \
  X(StreamDestroy, 4000, _v2, kRequired, (CUstream stream))                                                            \
  X(StreamSynchronize, 2000, , kRequired, (CUstream stream))                                                           \
  X(StreamIsCapturing, 10000, , kRequired, (CUstream stream, CUstreamCaptureStatus * status))                          \
  X(StreamWaitEvent, 3020, , kRequired, (CUstream stream, CUevent event, unsigned int flags))                          \
  X(MemcpyHtoDAsync, 3020, _v2, kRequired, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))          \
  X(MemcpyDtoHAsync, 3020, _v2, kRequired, (void* to, CUdeviceptr from, size_t bytes, CUstream stream))                \
  X(MemcpyDtoDAsync, 3020, _v2, kRequired, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))          \
  X(MemcpyAsync, 4000, , kRequired, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                 \
  X(MemsetD8Async, 3020, , kRequired, (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream))            \
  X(MemHostAlloc, 2020, , kRequired, (void** address, size_t bytes, unsigned int flags))                               \
  X(MemFreeHost, 2000, , kRequired, (void* address))                                                                   \
  X(MemHostRegister, 6050, _v2, kRequired, (void* address, size_t bytes, unsigned int flags))                          \
  X(MemHostUnregister, 4000, , kRequired, (void* address))                                                             \
  X(MemHostGetDevicePointer, 3020, _v2, kRequired, (CUdeviceptr * device, void* host, unsigned int flags))             \
  X(MemGetAllocationGranularity, 10020, , kRequired,                                                                   \
    (size_t * bytes, const CUmemAllocationProp* properties, CUmemAllocationGranularity_flags option))                  \
  X(MemCreate, 10020, , kRequired,                                                                                     \
    (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp* properties,                       \
     unsigned long long flags))                                                                                        \
  X(MemRelease, 10020, , kRequired, (CUmemGenericAllocationHandle handle))                                             \
  X(MemRetainAllocationHandle, 11000, , kRequired, (CUmemGenericAllocationHandle * handle, void* address))             \
  X(MemGetAllocationPropertiesFromHandle, 10020, , kRequired,                                                          \
    (CUmemAllocationProp * properties, CUmemGenericAllocationHandle handle))                                           \
  X(MemExportToShareableHandle, 10020, , kRequired,                                                                    \
    (void* shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags))  \
  X(MemImportFromShareableHandle, 10020, , kRequired,                                                                  \
    (CUmemGenericAllocationHandle * handle, void* shareable, CUmemAllocationHandleType type))                          \
  X(MemAddressReserve, 10020, , kRequired,                                                                             \
    (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags))               \
  X(MemAddressFree, 10020, , kRequired, (CUdeviceptr address, size_t bytes))                                           \
  X(MemMap, 10020, , kRequired,                                                                                        \
    (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)) \
  X(MemSetAccess, 10020, , kRequired,                                                                                  \
    (CUdeviceptr address, size_t bytes, const CUmemAccessDesc* description, size_t count))                             \
  X(MemUnmap, 10020, , kRequired, (CUdeviceptr address, size_t bytes))                                                 \
  X(PointerGetAttribute, 4000, , kRequired, (void* value, CUpointer_attribute attribute, CUdeviceptr address))         \
  X(PointerGetAttributes, 7000, , kRequired,                                                                           \
    (unsigned int count, CUpointer_attribute* attributes, void** values, CUdeviceptr address))

// The calls that only experiments on cards use.
#define AB_DRIVER_UNUSED_CALLS(X)                                                                                      \
  X(StreamWriteValue64, 11070, _v2, kOptional, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags)) \
  X(StreamWaitValue64, 11070, _v2, kOptional, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags))

#define AB_DRIVER_SYMBOLS(X) AB_DRIVER_CALLS(X) AB_DRIVER_UNUSED_CALLS(X)
