// SPDX-License-Identifier: Apache-2.0
// A client that maps GPU memory of another process, on the simulated driver: both kinds of handle, every check, and the
// state after a failed call. Each test body is a process of its own with its own driver.
#include <sys/wait.h>

#include <optional>
#include <thread>

#include <arraybridge/device.h>

#include "client/memory/cuda/cuda_ipc_mapper.h"
#include "client/memory/cuda/cuda_vmm_mapper.h"
#include "client/memory/mapper_table.h"
#include "tests/unit/client/cuda_owner.h"

namespace arraybridge {
namespace {

std::unique_ptr<MemoryMapper> MapperOf(HandleKind kind) {
  return kind == HandleKind::kCudaVmm ? MakeCudaVmmMapper(kLibrary) : MakeCudaIpcMapper(kLibrary);
}

class CudaMapperTest : public ::testing::TestWithParam<HandleKind> {
 protected:
  CudaMapperTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  static std::unique_ptr<Mapping> Mapped(const Handle& handle, Access access = Access::kRead) {
    auto mapping = MapperOf(handle.kind)->Map(handle, handle.device, access);
    EXPECT_TRUE(mapping.ok()) << mapping.status().ToString();
    return mapping.ok() ? *std::move(mapping) : nullptr;
  }
  static Code CodeOf(const Handle& handle) {
    return MapperOf(handle.kind)->Map(handle, handle.device, Access::kRead).status().code();
  }
};

TEST_P(CudaMapperTest, ReadsWhatTheOwnerWroteUnderItsOwnNumberOfTheDevice) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(GetParam(), "devices=2");
    const Handle handle = owner.Share();
    Machine("devices=2;visible=1,0");
    auto mapping = Mapped(handle);
    ASSERT_NE(mapping, nullptr);
    EXPECT_EQ(mapping->size(), kBlock);
    const auto local = MapperOf(GetParam())->Local(handle.device);
    EXPECT_EQ(local->id, 1);
    EXPECT_EQ(All(*mapping, *local), 'A');
    EXPECT_TRUE(mapping->Drain().ok());
    mapping.reset();
    ExpectNothingLeft();
  });
}

TEST_P(CudaMapperTest, TheProducerWritesAndTheOwnerSeesIt) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(GetParam(), "");
    const auto mapping = Mapped(owner.Share(), Access::kWrite);
    ASSERT_NE(mapping, nullptr);
    std::vector<uint8_t> content(kBlock, 'B');
    const Status written = mapping->CopyFrom(Bytes(content.data(), Device{}), 0);
    EXPECT_TRUE(written.ok()) << written.ToString();
    EXPECT_EQ(owner.Read(), "all 66");
    EXPECT_EQ(mapping->CopyFrom(Bytes(content.data(), Device{}), 1).code(), Code::kInvalidArgument);
    EXPECT_EQ(mapping->CopyFrom(Bytes(content.data(), Device{}), UINT64_MAX).code(), Code::kInvalidArgument);
  });
}

TEST_P(CudaMapperTest, LeavesTheCallersContextAsItWas) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(GetParam(), "devices=2");
    const Handle handle = owner.Share();
    const CudaDevices& devices = **CudaDevices::OfThisProcess(kLibrary);
    const cuda::Driver& driver = devices.driver();
    cuda::CUcontext theirs = nullptr;
    ASSERT_CUDA(driver.DevicePrimaryCtxRetain(&theirs, 1));
    for (const cuda::CUcontext current : {theirs, cuda::CUcontext{nullptr}}) {
      ASSERT_CUDA(driver.CtxSetCurrent(current));
      auto mapping = Mapped(handle);
      ASSERT_NE(mapping, nullptr);
      EXPECT_EQ(All(*mapping, {kDeviceCuda, 0, {}}), 'A');
      EXPECT_FALSE(mapping->CopyFrom(Bytes(mapping->data(), {kDeviceCuda, 9, {}}), 0).ok());
      mapping.reset();
      cuda::CUcontext after = nullptr;
      ASSERT_CUDA(driver.CtxGetCurrent(&after));
      EXPECT_EQ(after, current);
      cuda::CUstreamCaptureMode mode = cuda::CU_STREAM_CAPTURE_MODE_GLOBAL;
      ASSERT_CUDA(driver.ThreadExchangeStreamCaptureMode(&mode));
      EXPECT_EQ(mode, cuda::CU_STREAM_CAPTURE_MODE_GLOBAL);
    }
  });
}

TEST_P(CudaMapperTest, RefusesAWrongSizeAndLeavesNothing) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(GetParam(), "");
    Handle handle = owner.Share();
    for (const uint64_t size : {uint64_t{0}, 2 * kBlock, kBlock + 1, UINT64_MAX}) {
      handle.arena_size = size;
      EXPECT_FALSE(MapperOf(GetParam())->Map(handle, handle.device, Access::kRead).ok()) << size;
    }
    handle.arena_size = 2 * kBlock;
    EXPECT_EQ(CodeOf(handle), Code::kFailedPrecondition);
    ExpectNothingLeft();
    handle.arena_size = kBlock;
    EXPECT_NE(Mapped(handle), nullptr);
  });
}

TEST_P(CudaMapperTest, RefusesWhatIsNoHandleOfItsKind) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(GetParam(), "");
    Handle handle = owner.Share();
    const std::string opaque = handle.opaque;
    for (const size_t size : {size_t{0}, size_t{63}, size_t{65}}) {
      handle.kind = HandleKind::kCudaIpc;
      handle.opaque.assign(size, 'x');
      EXPECT_EQ(CodeOf(handle), Code::kFailedPrecondition) << size;
    }
    // Nothing says with which error a driver refuses these.
    const auto refused = [&] {
      return IsSimulated(kLibrary) ? CodeOf(handle) == Code::kFailedPrecondition : CodeOf(handle) != Code::kOk;
    };
    handle.opaque.assign(64, 'x');
    EXPECT_TRUE(refused());
    handle.kind = HandleKind::kCudaVmm;
    handle.descriptor.reset();
    EXPECT_EQ(CodeOf(handle), Code::kFailedPrecondition);
    handle.descriptor.reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
    EXPECT_TRUE(refused());
    handle.kind = HandleKind::kMemfd;
    EXPECT_EQ(MapperOf(GetParam())->Map(handle, handle.device, Access::kRead).status().code(), Code::kUnimplemented);
    EXPECT_EQ(MapperOf(GetParam())->Local(Device{}).status().code(), Code::kUnimplemented);
    EXPECT_EQ(MapperOf(GetParam())->MapPrivate(handle, 0, 256).status().code(), Code::kUnimplemented);
    ExpectNothingLeft();
  });
}

// A driver may refuse to look at pointers there, and another allocator's arrays come in any thread.
TEST_P(CudaMapperTest, TheGpuOfAnAddressIsFoundInAThreadWithoutAContext) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(GetParam(), "");
    Machine("fail=cuPointerGetAttribute:1:201");
    const auto mapping = Mapped(owner.Share());
    ASSERT_NE(mapping, nullptr);
    const auto gpu = GpuOf(mapping->data());
    ASSERT_TRUE(gpu.ok()) << gpu.status().ToString();
    EXPECT_EQ(gpu->uuid, kUuid);
    cuda::CUcontext current = nullptr;
    ASSERT_CUDA((*CudaDevices::OfThisProcess(kLibrary))->driver().CtxGetCurrent(&current));
    EXPECT_EQ(current, nullptr);
  });
}

// Then only its readers keep it unchanged, as they do memory that came by a cudaIpcMemHandle.
TEST_P(CudaMapperTest, MemoryThatTheDriverDoesNotMapReadOnlyIsReadAllTheSame) {
  if (GetParam() != HandleKind::kCudaVmm) GTEST_SKIP() << "a cudaIpcMemHandle is opened without access rights";
  for (const std::string error : {"1", "801"}) {
    EXPECT_FINE_IN_FRESH_PROCESS({
      CudaOwner owner(GetParam(), "");
      Machine("fail=cuMemSetAccess:1:" + error);
      EXPECT_EQ(MapsThatReadersMayWrite(), 0u);
      const auto mapping = Mapped(owner.Share());
      ASSERT_NE(mapping, nullptr);
      EXPECT_EQ(All(*mapping, {kDeviceCuda, 0, {}}), 'A');
      EXPECT_EQ(MapsThatReadersMayWrite(), 1u);
    });
  }
}

TEST_P(CudaMapperTest, ADeviceThatIsNotVisibleIsNamedBesideThoseThatAre) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(GetParam(), "devices=2");
    const Handle handle = owner.Share();
    Machine("devices=2;visible=1");
    const auto mapping = MapperOf(GetParam())->Map(handle, handle.device, Access::kRead);
    EXPECT_EQ(mapping.status().code(), Code::kFailedPrecondition);
    EXPECT_EQ(mapping.status().reason(), "DEVICE_NOT_VISIBLE");
    EXPECT_EQ(mapping.status().message(), std::string("this process does not see GPU ") + kUuid +
                                              "; visible: GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a01");
  });
}

TEST_P(CudaMapperTest, MemoryOfAnotherDeviceThanItsHandleSaysIsRefused) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(GetParam(), "devices=2");
    Handle handle = owner.Share();
    handle.device.uuid.back() = '1';
    EXPECT_FALSE(MapperOf(GetParam())->Map(handle, handle.device, Access::kRead).ok());
    ExpectNothingLeft();
  });
}

TEST_P(CudaMapperTest, WhateverCallFailsLeavesNothingAndTheNextMapWorks) {
  const std::vector<std::string> vmm = {"cuDevicePrimaryCtxRetain",
                                        "cuThreadExchangeStreamCaptureMode",
                                        "cuCtxSetCurrent",
                                        "cuMemImportFromShareableHandle",
                                        "cuMemGetAllocationPropertiesFromHandle",
                                        "cuMemAddressReserve",
                                        "cuMemMap",
                                        "cuMemSetAccess",
                                        "cuMemGetAddressRange"};
  const std::vector<std::string> ipc = {"cuDevicePrimaryCtxRetain", "cuThreadExchangeStreamCaptureMode",
                                        "cuCtxSetCurrent", "cuIpcOpenMemHandle", "cuMemGetAddressRange"};
  for (const std::string& symbol : GetParam() == HandleKind::kCudaVmm ? vmm : ipc) {
    EXPECT_FINE_IN_FRESH_PROCESS({
      CudaOwner owner(GetParam(), "");
      const Handle handle = owner.Share();
      Machine("fail=" + symbol + ":1:2");
      const auto failed = MapperOf(GetParam())->Map(handle, handle.device, Access::kRead);
      EXPECT_EQ(failed.status().code(), Code::kResourceExhausted) << failed.status().ToString();
      EXPECT_NE(failed.status().message().find(symbol), std::string::npos) << failed.status().ToString();
      ExpectNothingLeft();
      EXPECT_NE(Mapped(handle), nullptr) << symbol;
    }) << symbol;
  }
}

TEST_P(CudaMapperTest, TwoMappingsOfOneBlockLiveAndDieApart) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(GetParam(), "");
    const Handle handle = owner.Share();
    auto first = Mapped(handle, Access::kWrite);
    const auto second = Mapped(owner.Share());
    ASSERT_TRUE(first != nullptr && second != nullptr);
    std::vector<uint8_t> content(kBlock, 'C');
    ASSERT_TRUE(first->CopyFrom(Bytes(content.data(), Device{}), 0).ok());
    first.reset();
    EXPECT_EQ(All(*second, handle.device), 'C');
  });
}

TEST_P(CudaMapperTest, AnOwnerMayFreeWhenTheLastMappingHasGone) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    if (GetParam() == HandleKind::kCudaIpc) {
      CudaOwner owner(GetParam(), "");
      const Handle handle = owner.Share();
      auto first = Mapped(handle);
      auto second = Mapped(handle);
      first.reset();
      second.reset();
      EXPECT_EQ(owner.Free(), "0");  // with an importer it would end the owner
    }
  });
}

TEST_P(CudaMapperTest, AForkedChildNeitherMapsNorUnmaps) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(GetParam(), "");
    const Handle handle = owner.Share();
    auto mapping = Mapped(handle);
    const pid_t child = ::fork();
    if (child == 0) {
      mapping->Detach();
      const auto again = MapperOf(GetParam())->Map(handle, handle.device, Access::kRead);
      const bool refused = again.status().code() == Code::kFailedPrecondition &&
                           again.status().reason() == "CUDA_FORKED" && CudaDevices::IfUsed() == nullptr;
      mapping.reset();
      ::_exit(refused ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(All(*mapping, handle.device), 'A');
    mapping.reset();
    ExpectNothingLeft();
  });
}

TEST_P(CudaMapperTest, AnotherInstanceOfAPartitionedGpuIsNamedAsOne) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(GetParam(), "devices=2;mig=0,1");
    Handle handle = owner.Share();
    handle.device.uuid = "MIG" + handle.device.uuid.substr(3);
    Machine("devices=2;mig=0,1;visible=1");
    const auto mapping = MapperOf(GetParam())->Map(handle, handle.device, Access::kRead);
    EXPECT_EQ(mapping.status().reason(), "DEVICE_NOT_VISIBLE");
    EXPECT_EQ(mapping.status().message(),
              "this process does not see GPU MIG-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00; "
              "visible: MIG-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a01");
  });
}

// A capture of a graph, on a stream that does or does not wait for the default stream.
class Capture {
 public:
  Capture(const cuda::Driver& driver, uint32_t stream_flags) : driver_(driver) {
    EXPECT_EQ(driver.StreamCreate(&stream_, stream_flags), cuda::CUDA_SUCCESS);
    using BeginCapture = cuda::CUresult (*)(cuda::CUstream, cuda::CUstreamCaptureMode);
    EXPECT_EQ(Find<BeginCapture>("cuStreamBeginCapture_v2")(stream_, cuda::CU_STREAM_CAPTURE_MODE_GLOBAL),
              cuda::CUDA_SUCCESS);
  }
  // Ends the capture and returns the driver's result.
  cuda::CUresult End() {
    using EndCapture = cuda::CUresult (*)(cuda::CUstream, void**);
    const cuda::CUresult ended = Find<EndCapture>("cuStreamEndCapture")(stream_, nullptr);
    EXPECT_EQ(driver_.StreamDestroy(stream_), cuda::CUDA_SUCCESS);
    return ended;
  }

 private:
  template <class Function>
  static Function Find(const char* name) {
    return reinterpret_cast<Function>(::dlsym(::dlopen(kLibrary.c_str(), RTLD_NOW | RTLD_NOLOAD), name));
  }

  const cuda::Driver& driver_;
  cuda::CUstream stream_ = nullptr;
};

// Maps, reads, waits and unmaps in another thread, as the reclaimer does.
void UseMeanwhile(const Handle& handle, Code drained) {
  std::thread([&] {
    auto mapping = MapperOf(handle.kind)->Map(handle, handle.device, Access::kRead);
    ASSERT_TRUE(mapping.ok()) << mapping.status().ToString();
    EXPECT_EQ(All(**mapping, handle.device), 'A');
    EXPECT_EQ((*mapping)->Drain().code(), drained);
  }).join();
}

TEST_P(CudaMapperTest, ACaptureInTheProcessIsNotDisturbed) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(GetParam(), "");
    const CudaDevices& devices = **CudaDevices::OfThisProcess(kLibrary);
    const auto inside = devices.Enter(0);
    for (const uint32_t flags : {0u, cuda::kStreamNonBlocking}) {
      std::optional<CaptureScope> declared;
      if (flags == cuda::kStreamNonBlocking) declared.emplace();  // it is not visible from outside
      Capture capture(devices.driver(), flags);
      UseMeanwhile(owner.Share(), Code::kUnavailable);
      EXPECT_EQ(capture.End(), cuda::CUDA_SUCCESS);
      declared.reset();
      UseMeanwhile(owner.Share(), Code::kOk);
    }
    ExpectNothingLeft();  // a mapping kept by a capture was unmapped with the next one
  });
}

TEST_P(CudaMapperTest, WhatDiedDuringAnAnnouncedCaptureIsLetGoWithIt) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(GetParam(), "");
    const CudaDevices& devices = **CudaDevices::OfThisProcess(kLibrary);
    const auto inside = devices.Enter(0);
    {
      const CaptureScope declared;
      Capture capture(devices.driver(), cuda::kStreamNonBlocking);
      UseMeanwhile(owner.Share(), Code::kUnavailable);
      EXPECT_EQ(capture.End(), cuda::CUDA_SUCCESS);
    }
    ExpectNothingLeft();
  });
}

TEST_P(CudaMapperTest, AfterACaptureThatItCouldNotSeeItAsksLessOften) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(GetParam(), "");
    const CudaDevices& devices = **CudaDevices::OfThisProcess(kLibrary);
    const auto inside = devices.Enter(0);
    auto mapping = Mapped(owner.Share());
    Capture unseen(devices.driver(), cuda::kStreamNonBlocking);
    EXPECT_EQ(mapping->Drain().code(), Code::kUnavailable);
    const long asked = cuda::Counter("cuCtxRecordEvent");
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(mapping->Drain().code(), Code::kUnavailable);
    EXPECT_EQ(cuda::Counter("cuCtxRecordEvent"), asked);
    EXPECT_EQ(unseen.End(), cuda::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    while (!mapping->Drain().ok()) std::this_thread::yield();
  });
}

TEST_P(CudaMapperTest, WaitingForADeviceBlocksNobody) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(GetParam(), "held");
    const CudaDevices& devices = **CudaDevices::OfThisProcess(kLibrary);
    const auto inside = devices.Enter(0);
    auto mapping = Mapped(owner.Share());
    uint8_t byte = 0;
    cuda::CUstream stream = nullptr;
    ASSERT_CUDA(devices.driver().StreamCreate(&stream, cuda::kStreamNonBlocking));
    const auto address = reinterpret_cast<cuda::CUdeviceptr>(mapping->data());
    ASSERT_CUDA(devices.driver().MemcpyDtoHAsync(&byte, address, 1, stream));
    const auto first = mapping->Now();
    const auto second = mapping->Now();
    EXPECT_EQ(first, second) << "one query for all earlier work";
    EXPECT_EQ(*first->Poll(), DeviceEvent::State::kPending);
    EXPECT_EQ(*first->Poll(), DeviceEvent::State::kPending);
    EXPECT_NE(mapping->Now(), first) << "work may have been queued since";
    EXPECT_EQ(byte, 0) << "nobody waited";
    ASSERT_CUDA(devices.driver().StreamSynchronize(stream));
    EXPECT_EQ(*first->Poll(), DeviceEvent::State::kPassed);
    EXPECT_EQ(byte, 'A');
    EXPECT_EQ(cuda::Counter("cuCtxSynchronize"), 0);
    ASSERT_CUDA(devices.driver().StreamDestroy(stream));
  });
}

TEST_P(CudaMapperTest, AnOlderDriverIsWaitedFor) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(GetParam(), "version=12040");
    const CudaDevices& devices = **CudaDevices::OfThisProcess(kLibrary);
    auto mapping = Mapped(owner.Share());
    const auto inside = devices.Enter(0);
    uint8_t byte = 0;
    const auto own = devices.OwnStream(0);
    const auto address = reinterpret_cast<cuda::CUdeviceptr>(mapping->data());
    ASSERT_CUDA(devices.driver().MemcpyDtoHAsync(&byte, address, 1, *own));
    EXPECT_TRUE(mapping->Drain().ok());
    EXPECT_EQ(byte, 'A');
    EXPECT_GT(cuda::Counter("cuCtxSynchronize"), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Both, CudaMapperTest, ::testing::Values(HandleKind::kCudaVmm, HandleKind::kCudaIpc),
                         [](const auto& param) { return param.param == HandleKind::kCudaVmm ? "Vmm" : "Ipc"; });

}  // namespace
}  // namespace arraybridge
