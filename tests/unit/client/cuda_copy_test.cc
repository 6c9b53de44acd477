// SPDX-License-Identifier: Apache-2.0
// Copies to and from GPUs, the devices that a client knows before it uses one, and the protection of a reader's memory.
#include "client/memory/cuda/cuda_copy.h"

#include <arraybridge/device.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "client/memory/cuda/cuda_fence.h"
#include "client/memory/cuda/cuda_staging.h"
#include "client/memory/cuda/cuda_vmm_mapper.h"
#include "client/memory/mapper_table.h"
#include "proto/boundary/fence.h"
#include "tests/unit/client/cuda_memory.h"
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

TEST_F(CudaClientTest, AnEventThatNobodyMadeIsRefusedByName) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    Machine("");
    const Device gpu = (*CudaDevices::OfThisProcess(kLibrary))->all().at(0);
    const Status refused = OpenEvent(gpu, std::string(kEventBytes, 'e'), {}).status();
    EXPECT_EQ(refused.code(), Code::kUnavailable);
    EXPECT_EQ(refused.reason(), "EVENT_NOT_OPENED");
  });
}

TEST_F(CudaClientTest, WithoutALibraryThereIsHostMemoryAlone) {
  const auto mappers = MapperTable::OfThisProcess("/nonexistent/libcuda.so.1");
  EXPECT_EQ(mappers->kinds(), std::vector{HandleKind::kMemfd});
  EXPECT_EQ(mappers->Of(HandleKind::kCudaVmm).status().code(), Code::kUnimplemented);
  EXPECT_EQ(mappers->Local({kDeviceCuda, 0, {}}).status().code(), Code::kUnavailable);
}

// Copies from memory of the first GPU to a broker's memory on the second. Returns its bytes and the copies.
struct Crossed {
  int bytes = -1;
  long to_host = 0;
  long between = 0;
};
Crossed CrossIn(const std::string& machine) {
  CudaOwner owner(HandleKind::kCudaVmm, "devices=2");
  const Handle handle = owner.Share();
  Machine(machine);
  const CudaDevices& devices = **CudaDevices::OfThisProcess(kLibrary);
  const cuda::Driver& driver = devices.driver();
  cuda::CUdeviceptr memory = 0;
  const Device other{kDeviceCuda, 1, {}};  // the owner's block lies on the first GPU, this process's device 0
  {
    const auto inside = devices.Enter(other.id);
    EXPECT_EQ(driver.MemAlloc(&memory, kBlock), cuda::CUDA_SUCCESS);
  }
  std::vector<uint8_t> content(kBlock, 'S');
  EXPECT_TRUE(CopyOverDevice(Bytes(content.data(), Device{}), reinterpret_cast<void*>(memory), other).ok());
  const auto mapping = MakeCudaVmmMapper(kLibrary)->Map(handle, handle.device, Access::kWrite);
  EXPECT_TRUE(mapping.ok()) << mapping.status().ToString();
  Crossed crossed;
  crossed.to_host = -Counter("cuMemcpyDtoHAsync");
  crossed.between = -Counter("cuMemcpyAsync");
  const Status copied = (*mapping)->CopyFrom(Bytes(reinterpret_cast<void*>(memory), other), 0);
  EXPECT_TRUE(copied.ok()) << copied.ToString();
  crossed.to_host += Counter("cuMemcpyDtoHAsync");
  crossed.between += Counter("cuMemcpyAsync");
  crossed.bytes = All(**mapping, {kDeviceCuda, 0, {}});
  const auto inside = devices.Enter(other.id);
  EXPECT_EQ(driver.MemFree(memory), cuda::CUDA_SUCCESS);
  return crossed;
}

TEST_F(CudaClientTest, FromOneGpuToAnotherThatReachesItBytesGoDirectly) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const Crossed crossed = CrossIn("devices=2;peers");
    EXPECT_EQ(crossed.bytes, 'S');
    EXPECT_EQ(crossed.between, 1);
    EXPECT_EQ(crossed.to_host, 0);
  });
}

TEST_F(CudaClientTest, ElseTheyGoByTheHost) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const Crossed crossed = CrossIn("devices=2");
    EXPECT_EQ(crossed.bytes, 'S');
    EXPECT_EQ(crossed.between, 0);
    EXPECT_GE(crossed.to_host, 1);
  });
}

std::vector<uint8_t> Pattern(uint64_t bytes) {
  std::vector<uint8_t> pattern(bytes);
  for (uint64_t i = 0; i < bytes; ++i) pattern[i] = static_cast<uint8_t>(i * 7 + i / 4099);
  return pattern;
}

// True if a pattern of so many bytes survives a copy to the GPU and back.
bool ComesBack(const OnGpu& gpu, uint64_t bytes) {
  const Device device{kDeviceCuda, 0, {}};
  const std::vector<uint8_t> pattern = Pattern(bytes);
  std::vector<uint8_t> source = pattern;
  EXPECT_TRUE(CopyOverDevice(Bytes(source.data(), Device{}, bytes), gpu.data(), device).ok());
  std::fill(source.begin(), source.end(), uint8_t{0});  // the copy has finished on return
  const auto back = CopyToHeap(Bytes(gpu.data(), device, bytes));
  EXPECT_TRUE(back.ok()) << back.status().ToString();
  return std::equal(pattern.begin(), pattern.end(), static_cast<const uint8_t*>(back->data));
}

TEST_F(CudaClientTest, LargeCopiesGoByPinnedChunksPieceByPiece) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("", 5 * kChunkBytes);
    EXPECT_TRUE(ComesBack(gpu, kStagedBytesMin - 1));
    EXPECT_EQ(Counter("cuMemHostAlloc"), 0);
    EXPECT_TRUE(ComesBack(gpu, 4 * kChunkBytes + 3));
    EXPECT_EQ(Counter("cuMemHostAlloc"), 2) << "the chunks are used again";
    EXPECT_EQ(Counter("cuMemcpyHtoDAsync"), 1 + 5);
    EXPECT_TRUE(ComesBack(gpu, kStagedBytesMin));
    EXPECT_TRUE(ComesBack(gpu, 2 * kChunkBytes));
    EXPECT_EQ(Counter("live_pinned"), 2);
    EXPECT_EQ(Counter("live_events"), 0);
  });
}

// Copies patterns of these sizes to `gpu` in one call, each at the next multiple of 256 bytes. True if they arrive.
bool GoTogether(const OnGpu& gpu, const std::vector<uint64_t>& sizes) {
  const Device device{kDeviceCuda, 0, {}};
  std::vector<std::vector<uint8_t>> patterns;
  std::vector<View> sources;
  std::vector<View> rooms;
  auto* next = static_cast<std::byte*>(gpu.data());
  for (const uint64_t size : sizes) {
    patterns.push_back(Pattern(size));
    sources.push_back(Bytes(patterns.back().data(), Device{}, size));
    rooms.push_back(Bytes(next, device, size));
    next += (size + 255) / 256 * 256;
  }
  const Status copied = CopyToGpus(sources, rooms);
  EXPECT_TRUE(copied.ok()) << copied.ToString();
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto back = CopyToHeap(rooms[i]);
    EXPECT_TRUE(back.ok()) << back.status().ToString();
    if (sizes[i] > 0 && !std::equal(patterns[i].begin(), patterns[i].end(), static_cast<const uint8_t*>(back->data)))
      return false;
  }
  return true;
}

TEST_F(CudaClientTest, ManySmallArraysGoToTheGpuByOneChunkAndOneWait) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("", kChunkBytes);
    const std::vector<View> one = {Bytes(gpu.data(), {kDeviceCuda, 0, {}}, 4)};
    std::vector<uint8_t> few(4);
    const std::vector<View> source = {Bytes(few.data(), Device{}, 4)};
    EXPECT_TRUE(CopyToGpus(source, one).ok());
    EXPECT_EQ(Counter("cuMemHostAlloc"), 0) << "a single small array is not worth pinned memory";
    const long waits = Counter("cuStreamSynchronize");
    const long copies = Counter("cuMemcpyHtoDAsync");
    std::vector<View> sources(100, source[0]);
    const std::vector<View> rooms(100, one[0]);
    EXPECT_TRUE(CopyToGpus(sources, rooms).ok());
    EXPECT_EQ(Counter("cuStreamSynchronize") - waits, 1);
    EXPECT_EQ(Counter("cuMemcpyHtoDAsync") - copies, 100);
    EXPECT_EQ(Counter("cuMemHostAlloc"), 2);
    EXPECT_TRUE(GoTogether(gpu, {1, 0, 255, 256, 257, 70'000, 0, 3}));
  });
}

TEST_F(CudaClientTest, ABatchFillsChunkAfterChunk) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("", 8 * kChunkBytes);
    EXPECT_TRUE(GoTogether(gpu, {kChunkBytes / 2, kChunkBytes, 5, 3 * kChunkBytes + 1, kChunkBytes - 256, 9}));
    EXPECT_TRUE(GoTogether(gpu, {kChunkBytes - 1, kChunkBytes, kChunkBytes, kChunkBytes}));
    EXPECT_EQ(Counter("cuMemHostAlloc"), 2);
    EXPECT_EQ(Counter("live_events"), 0);
  });
}

TEST_F(CudaClientTest, ABatchIsStridedUnpinnedOrRefused) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("fail=cuMemHostAlloc:*:2", 2 * kChunkBytes);
    EXPECT_TRUE(GoTogether(gpu, {kChunkBytes, 3, 4}));
    EXPECT_EQ(Counter("live_pinned"), 0);
    const Device device{kDeviceCuda, 0, {}};
    std::vector<uint8_t> pattern = Pattern(200);
    View backwards = Bytes(pattern.data() + 198, Device{}, 100);
    backwards.strides = {-2};
    const std::vector<View> sources = {backwards, Bytes(pattern.data(), Device{}, 100)};
    const std::vector<View> rooms = {Bytes(gpu.data(), device, 100),
                                     Bytes(static_cast<std::byte*>(gpu.data()) + 256, device, 100)};
    EXPECT_TRUE(CopyToGpus(sources, rooms).ok());
    const auto back = CopyToHeap(rooms[0]);
    for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(static_cast<const uint8_t*>(back->data)[i], pattern[198 - 2 * i]);
    EXPECT_EQ(CopyToGpus(sources, std::span(rooms).first(1)).code(), Code::kInvalidArgument);
    View unknown = sources[1];
    unknown.device.type = 8;
    EXPECT_EQ(CopyToGpus({&unknown, 1}, {&rooms[0], 1}).code(), Code::kInvalidArgument);
    EXPECT_EQ(CopyToGpus(sources, sources).code(), Code::kInvalidArgument);
    const std::vector<View> shorter = {Bytes(gpu.data(), device, 99)};
    EXPECT_EQ(CopyToGpus(std::span(sources).first(1), shorter).code(), Code::kInvalidArgument);
  });
}

TEST_F(CudaClientTest, ABatchTakesArraysOfTheGpuToo) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("", 4096);
    const Device device{kDeviceCuda, 0, {}};
    auto* const memory = static_cast<std::byte*>(gpu.data());
    std::vector<uint8_t> pattern = Pattern(200);
    ASSERT_TRUE(CopyOverDevice(Bytes(pattern.data(), Device{}, 200), memory, device).ok());
    View backwards = Bytes(memory + 198, device, 100);
    backwards.strides = {-2};
    const std::vector<View> sources = {Bytes(pattern.data(), Device{}, 100), Bytes(memory + 100, device, 100),
                                       backwards};
    std::vector<View> rooms;
    for (const uint64_t at : {1024, 2048, 3072}) rooms.push_back(Bytes(memory + at, device, 100));
    const Status copied = CopyToGpus(sources, rooms);
    ASSERT_TRUE(copied.ok()) << copied.ToString();
    std::vector<Result<View>> back;
    for (const View& room : rooms) back.push_back(CopyToHeap(room));
    for (size_t i = 0; i < 100; ++i) {
      EXPECT_EQ(static_cast<const uint8_t*>(back[0]->data)[i], pattern[i]);
      EXPECT_EQ(static_cast<const uint8_t*>(back[1]->data)[i], pattern[100 + i]);
      EXPECT_EQ(static_cast<const uint8_t*>(back[2]->data)[i], pattern[198 - 2 * i]);
    }
  });
}

TEST_F(CudaClientTest, ManyThreadsShareTheFewChunks) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpus[6] = {{"", kChunkBytes}, {"", kChunkBytes}, {"", kChunkBytes},
                           {"", kChunkBytes}, {"", kChunkBytes}, {"", kChunkBytes}};
    std::vector<std::thread> threads;
    std::atomic<int> right{0};
    for (const OnGpu& gpu : gpus) {
      threads.emplace_back([&] {
        for (int i = 0; i < 5; ++i) right += ComesBack(gpu, kChunkBytes) ? 1 : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(right, 30);
    EXPECT_LE(Counter("live_pinned"), static_cast<long>(kChunksMax));
  });
}

TEST_F(CudaClientTest, ADriverThatPinsNothingCopiesAllTheSame) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("fail=cuMemHostAlloc:*:2", 2 * kChunkBytes);
    EXPECT_TRUE(ComesBack(gpu, 2 * kChunkBytes));
    EXPECT_EQ(Counter("live_pinned"), 0);
  });
}

TEST_F(CudaClientTest, StridedArraysOnAGpuAreCopiedCompact) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("", kBlock);
    const OnGpu target("", kBlock);
    const Device device{kDeviceCuda, 0, {}};
    std::vector<uint8_t> pattern = Pattern(kBlock);
    ASSERT_TRUE(CopyOverDevice(Bytes(pattern.data(), Device{}), gpu.data(), device).ok());
    View columns = Bytes(static_cast<std::byte*>(gpu.data()) + 99, device);  // every second element of a row, backwards
    columns.shape = {100, 50};
    columns.strides = {200, -2};
    const auto on_heap = CopyToHeap(columns);
    ASSERT_TRUE(on_heap.ok()) << on_heap.status().ToString();
    ASSERT_TRUE(CopyOverDevice(columns, target.data(), device).ok());
    const auto on_gpu = CopyToHeap(Bytes(target.data(), device, 5000));
    for (uint64_t row = 0; row < 100; ++row) {
      for (uint64_t column = 0; column < 50; ++column) {
        const uint8_t expected = pattern[99 + row * 200 - column * 2];
        ASSERT_EQ(static_cast<const uint8_t*>(on_heap->data)[row * 50 + column], expected);
        ASSERT_EQ(static_cast<const uint8_t*>(on_gpu->data)[row * 50 + column], expected);
      }
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
    EXPECT_NE(static_cast<uint8_t*>(CopyToHeap(view)->data)[0], 'Q') << "late: no thread has waited for that stream";
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
    ASSERT_CUDA(driver.StreamDestroy(stream));
    ASSERT_CUDA(driver.MemFree(memory));
  });
}

}  // namespace
}  // namespace arraybridge
