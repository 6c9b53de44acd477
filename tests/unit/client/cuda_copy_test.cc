// Copies over a GPU, what a client knows of its devices before it needs one, and what protects a reader's memory.
#include "client/memory/cuda_copy.h"

#include <arraybridge/device.h>

#include "client/memory/cuda_vmm_mapper.h"
#include "client/memory/mapper_table.h"
#include "tests/unit/client/cuda_owner.h"

namespace arraybridge {
namespace {

class CudaClientTest : public cuda::FreshDriverTest {};

TEST_F(CudaClientTest, AReadersWriteThroughAVmmMappingFaults) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    CudaOwner owner(HandleKind::kCudaVmm, "");
    const Handle handle = owner.Share();
    const auto mapping = MakeCudaVmmMapper(kLibrary)->Map(handle, handle.device, Access::kRead);
    std::vector<uint8_t> content(kBlock, 'B');
    EXPECT_EQ((*mapping)->CopyFrom(Bytes(content.data(), Device{}), 0).code(), Code::kAborted);
    EXPECT_EQ(owner.Read(), "A");
  });
}

TEST_F(CudaClientTest, KnowingTheKindsInitialisesNothing) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    Machine("");
    const auto mappers = MapperTable::OfThisProcess(kLibrary);
    const std::vector<HandleKind> all = {HandleKind::kMemfd, HandleKind::kCudaVmm, HandleKind::kCudaIpc};
    EXPECT_EQ(mappers->kinds(), all);
    EXPECT_TRUE(mappers->Local(Device{}).ok());
    EXPECT_EQ(CudaDevices::IfUsed(), nullptr);
    EXPECT_EQ(Counter("cuInit"), 0);
    EXPECT_EQ(mappers->Local({kDeviceCuda, 0, {}})->uuid, kUuid);
    EXPECT_EQ(Counter("cuInit"), 1);
    EXPECT_EQ(Counter("contexts_created"), 0);
  });
}

TEST_F(CudaClientTest, WithoutALibraryThereIsHostMemoryAlone) {
  const auto mappers = MapperTable::OfThisProcess("/nonexistent/libcuda.so.1");
  EXPECT_EQ(mappers->kinds(), std::vector{HandleKind::kMemfd});
  EXPECT_EQ(mappers->Of(HandleKind::kCudaVmm).status().code(), Code::kUnimplemented);
  EXPECT_EQ(mappers->Local({kDeviceCuda, 0, {}}).status().code(), Code::kUnavailable);
}

TEST_F(CudaClientTest, FromOneGpuToAnotherBytesGoByTheHost) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    Machine("devices=2");
    const CudaDevices& devices = **CudaDevices::OfThisProcess(kLibrary);
    const cuda::Driver& driver = devices.driver();
    cuda::CUdeviceptr memory[2] = {};
    for (const int gpu : {0, 1}) {
      const auto inside = devices.Enter(gpu);
      ASSERT_CUDA(driver.MemAlloc(&memory[gpu], kBlock));
    }
    const Device first{kDeviceCuda, 0, {}};
    const Device second{kDeviceCuda, 1, {}};
    std::vector<uint8_t> content(kBlock, 'S');
    ASSERT_TRUE(CopyOverDevice(Bytes(content.data(), Device{}), reinterpret_cast<void*>(memory[0]), first).ok());
    const View source = Bytes(reinterpret_cast<void*>(memory[0]), first);
    const Status copied = CopyOverDevice(source, reinterpret_cast<void*>(memory[1]), second);
    EXPECT_TRUE(copied.ok()) << copied.ToString();
    const auto read = CopyToHeap(Bytes(reinterpret_cast<void*>(memory[1]), second));
    EXPECT_EQ(static_cast<uint8_t*>(read->data)[kBlock - 1], 'S');
    for (const int gpu : {0, 1}) {
      const auto inside = devices.Enter(gpu);
      ASSERT_CUDA(driver.MemFree(memory[gpu]));
    }
  });
}

TEST_F(CudaClientTest, CopiesComeAfterTheProducersStreamAndNotAfterOthers) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    Machine("");
    const CudaDevices& devices = **CudaDevices::OfThisProcess(kLibrary);
    const cuda::Driver& driver = devices.driver();
    const auto inside = devices.Enter(0);
    cuda::CUdeviceptr memory = 0;
    cuda::CUstream stream = nullptr;
    ASSERT_CUDA(driver.MemAlloc(&memory, kBlock));
    ASSERT_CUDA(driver.StreamCreate(&stream, cuda::kStreamNonBlocking));
    ASSERT_CUDA(driver.MemsetD8Async(memory, 'Q', kBlock, stream));
    View view = Bytes(reinterpret_cast<void*>(memory), {kDeviceCuda, 0, {}});
    EXPECT_NE(static_cast<uint8_t*>(CopyToHeap(view)->data)[0], 'Q') << "late: nobody has asked for that stream";
    EXPECT_TRUE(WaitForProducer(view).ok());
    EXPECT_NE(static_cast<uint8_t*>(CopyToHeap(view)->data)[0], 'Q');
    view.stream = reinterpret_cast<uintptr_t>(stream);
    const auto copy = CopyToHeap(view);
    EXPECT_EQ(static_cast<uint8_t*>(copy->data)[kBlock - 1], 'Q');
    EXPECT_FALSE(copy->stream.has_value());
    EXPECT_EQ(copy->device.type, kDeviceCpu);
    ASSERT_CUDA(driver.MemsetD8Async(memory, 'R', kBlock, stream));
    EXPECT_TRUE(WaitForProducer(view).ok());
    view.stream.reset();
    EXPECT_EQ(static_cast<uint8_t*>(CopyToHeap(view)->data)[0], 'R');
    view.shape = {1024, 1024};
    view.strides = {2048, 1};
    EXPECT_EQ(CopyToHeap(view).status().code(), Code::kUnimplemented);
    ASSERT_CUDA(driver.StreamDestroy(stream));
    ASSERT_CUDA(driver.MemFree(memory));
  });
}

}  // namespace
}  // namespace arraybridge
