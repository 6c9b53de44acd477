// SPDX-License-Identifier: Apache-2.0
// Calls that frameworks import and that nothing here can do: each leaves the error that it returns. This file has no
// headers of the runtime, because they give some of these calls, and the last ones, other names or parameters with each
// version.
#include "tests/simulated_cuda/frameworks/cudart/unsupported.h"

#define UNSUPPORTED(name)                                       \
  extern "C" __attribute__((visibility("default"))) int name(); \
  int name() { return arraybridge::simulated_runtime::Refused(); }

// Kernels of libraries, which are machine code.
UNSUPPORTED(__cudaGetKernel)
UNSUPPORTED(__cudaLaunchKernel)
UNSUPPORTED(__cudaLaunchKernel_ptsz)
UNSUPPORTED(__cudaPopCallConfiguration)
UNSUPPORTED(cudaFuncGetAttributes)
UNSUPPORTED(cudaFuncSetAttribute)
UNSUPPORTED(cudaFuncSetCacheConfig)
UNSUPPORTED(cudaGetFuncBySymbol)
UNSUPPORTED(cudaGetKernel)
UNSUPPORTED(cudaGetSymbolAddress)
UNSUPPORTED(cudaGetSymbolSize)
UNSUPPORTED(cudaKernelSetAttributeForDevice)
UNSUPPORTED(cudaLaunchCooperativeKernel)
UNSUPPORTED(cudaLaunchKernel)
UNSUPPORTED(cudaLaunchKernelExC)
UNSUPPORTED(cudaLibraryGetGlobal)
UNSUPPORTED(cudaLibraryGetKernel)
UNSUPPORTED(cudaLibraryGetKernelCount)
UNSUPPORTED(cudaLibraryGetManaged)
UNSUPPORTED(cudaLibraryGetUnifiedFunction)
UNSUPPORTED(cudaLibraryLoadData)
UNSUPPORTED(cudaLibraryLoadFromFile)
UNSUPPORTED(cudaLibraryUnload)
UNSUPPORTED(cudaMemcpyFromSymbol)
UNSUPPORTED(cudaMemcpyToSymbol)
UNSUPPORTED(cudaMemcpyToSymbolAsync)
UNSUPPORTED(cudaOccupancyAvailableDynamicSMemPerBlock)
UNSUPPORTED(cudaOccupancyMaxActiveBlocksPerMultiprocessor)
UNSUPPORTED(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)
UNSUPPORTED(cudaOccupancyMaxActiveClusters)

// Pools and managed memory.
UNSUPPORTED(cudaDeviceGetDefaultMemPool)
UNSUPPORTED(cudaDeviceGetMemPool)
UNSUPPORTED(cudaDeviceSetMemPool)
UNSUPPORTED(cudaFreeAsync)
UNSUPPORTED(cudaMallocAsync)
UNSUPPORTED(cudaMallocFromPoolAsync)
UNSUPPORTED(cudaMallocManaged)
UNSUPPORTED(cudaMemAdvise)
UNSUPPORTED(cudaMemPoolCreate)
UNSUPPORTED(cudaMemPoolDestroy)
UNSUPPORTED(cudaMemPoolGetAttribute)
UNSUPPORTED(cudaMemPoolSetAccess)
UNSUPPORTED(cudaMemPoolSetAttribute)
UNSUPPORTED(cudaMemPoolTrimTo)
UNSUPPORTED(cudaMemPrefetchAsync)

// Graphs: a capture records nothing.
UNSUPPORTED(cudaDeviceGetGraphMemAttribute)
UNSUPPORTED(cudaDeviceSetGraphMemAttribute)
UNSUPPORTED(cudaGraphAddDependencies)
UNSUPPORTED(cudaGraphAddKernelNode)
UNSUPPORTED(cudaGraphAddNode)
UNSUPPORTED(cudaGraphConditionalHandleCreate)
UNSUPPORTED(cudaGraphCreate)
UNSUPPORTED(cudaGraphDebugDotPrint)
UNSUPPORTED(cudaGraphDestroy)
UNSUPPORTED(cudaGraphExecDestroy)
UNSUPPORTED(cudaGraphExecUpdate)
UNSUPPORTED(cudaGraphGetNodes)
UNSUPPORTED(cudaGraphInstantiate)
UNSUPPORTED(cudaGraphInstantiateWithFlags)
UNSUPPORTED(cudaGraphLaunch)
UNSUPPORTED(cudaGraphNodeGetDependencies)
UNSUPPORTED(cudaGraphRetainUserObject)
UNSUPPORTED(cudaGraphUpload)
UNSUPPORTED(cudaStreamBeginCaptureToGraph)
UNSUPPORTED(cudaStreamUpdateCaptureDependencies)
UNSUPPORTED(cudaUserObjectCreate)
UNSUPPORTED(cudaUserObjectRelease)

// Arrays, textures, surfaces, and copies of three dimensions.
UNSUPPORTED(cudaCreateSurfaceObject)
UNSUPPORTED(cudaCreateTextureObject)
UNSUPPORTED(cudaDestroySurfaceObject)
UNSUPPORTED(cudaDestroyTextureObject)
UNSUPPORTED(cudaFreeArray)
UNSUPPORTED(cudaGetChannelDesc)
UNSUPPORTED(cudaGetTextureObjectResourceDesc)
UNSUPPORTED(cudaGetTextureObjectTextureDesc)
UNSUPPORTED(cudaMalloc3DArray)
UNSUPPORTED(cudaMallocArray)
UNSUPPORTED(cudaMemcpy2DFromArray)
UNSUPPORTED(cudaMemcpy2DFromArrayAsync)
UNSUPPORTED(cudaMemcpy2DToArray)
UNSUPPORTED(cudaMemcpy2DToArrayAsync)
UNSUPPORTED(cudaMemcpy3D)
UNSUPPORTED(cudaMemcpy3DAsync)
UNSUPPORTED(cudaMemset2DAsync)

// Settings of devices.
UNSUPPORTED(cudaDeviceDisablePeerAccess)
UNSUPPORTED(cudaDeviceGetP2PAttribute)
UNSUPPORTED(cudaDeviceReset)
UNSUPPORTED(cudaDeviceSetLimit)
UNSUPPORTED(cudaGetDeviceFlags)
UNSUPPORTED(cudaSetDeviceFlags)
UNSUPPORTED(cudaStreamAttachMemAsync)

// What is captured beside the status is empty, so the parameters after these stay as they are.
#define CAPTURE_INFO(name)                                                                                            \
  extern "C" __attribute__((visibility("default"))) int name(void* stream, int* status, unsigned long long* capture); \
  int name(void* stream, int* status, unsigned long long* capture) {                                                  \
    if (capture != nullptr) *capture = 0;                                                                             \
    return arraybridge::simulated_runtime::IsCapturing(stream, status);                                               \
  }
CAPTURE_INFO(cudaStreamGetCaptureInfo)
CAPTURE_INFO(cudaStreamGetCaptureInfo_v2)
CAPTURE_INFO(cudaStreamGetCaptureInfo_v3)
