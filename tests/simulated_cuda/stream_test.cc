// SPDX-License-Identifier: Apache-2.0
// Late execution: work runs when a call waits for it, in the order that streams and events define.
#include <functional>
#include <future>
#include <thread>

#include "tests/integration/build_tree.h"
#include "tests/simulated_cuda/driver_fixture.h"

namespace arraybridge::cuda {
namespace {

class StreamTest : public DriverFixture {
 protected:
  void SetUp() override {
    DriverFixture::SetUp();
    ASSERT_CUDA(driver_->MemAlloc(&memory_, kBlock));
    ASSERT_CUDA(driver_->StreamCreate(&first_, kStreamNonBlocking));
    ASSERT_CUDA(driver_->StreamCreate(&second_, kStreamNonBlocking));
    ASSERT_CUDA(driver_->EventCreate(&event_, kEventDisableTiming));
  }
  void TearDown() override {
    EXPECT_EQ(driver_->CtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(driver_->EventDestroy(event_), CUDA_SUCCESS);
    EXPECT_EQ(driver_->StreamDestroy(first_), CUDA_SUCCESS);
    EXPECT_EQ(driver_->StreamDestroy(second_), CUDA_SUCCESS);
    EXPECT_EQ(driver_->MemFree(memory_), CUDA_SUCCESS);
    DriverFixture::TearDown();
  }
  void Fill(uint8_t value, CUstream stream) { ASSERT_CUDA(driver_->MemsetD8Async(memory_, value, kBlock, stream)); }
  // The value that a copy on this stream returns after waiting for it.
  uint8_t Seen(CUstream stream) {
    uint8_t byte = 0;
    EXPECT_EQ(driver_->MemcpyDtoHAsync(&byte, memory_ + kBlock - 1, 1, stream), CUDA_SUCCESS);
    EXPECT_EQ(driver_->StreamSynchronize(stream), CUDA_SUCCESS);
    return byte;
  }

  CUdeviceptr memory_ = 0;
  CUstream first_ = nullptr;
  CUstream second_ = nullptr;
  CUevent event_ = nullptr;
};

TEST_F(StreamTest, AReaderThatDoesNotWaitReadsOldBytes) {
  Fill(1, first_);
  EXPECT_EQ(Seen(second_), 0xCD);
  EXPECT_EQ(Seen(first_), 1);
  EXPECT_EQ(Seen(second_), 1);
}

TEST_F(StreamTest, AReaderThatWaitsForTheEventReadsNewBytes) {
  Fill(1, first_);
  ASSERT_CUDA(driver_->EventRecord(event_, first_));
  Fill(2, first_);
  ASSERT_CUDA(driver_->StreamWaitEvent(second_, event_, 0));
  EXPECT_EQ(Seen(second_), 1) << "work that was enqueued after the record has not run";
}

// On hardware the host does not wait for these either: a program that reads the bytes on another stream must.
TEST_F(StreamTest, FillsAndCopiesOnTheDeviceRunLateWithoutAsyncInTheirNames) {
  void* const library = ::dlopen(Built(SIMULATED_CUDA_LIBRARY).c_str(), RTLD_NOW | RTLD_NOLOAD);
  const auto fill =
      reinterpret_cast<CUresult (*)(CUdeviceptr, unsigned char, size_t)>(::dlsym(library, "cuMemsetD8_v2"));
  const auto copy =
      reinterpret_cast<CUresult (*)(CUdeviceptr, CUdeviceptr, size_t)>(::dlsym(library, "cuMemcpyDtoD_v2"));
  ASSERT_CUDA(fill(memory_, 1, kBlock));
  EXPECT_EQ(Seen(second_), 0xCD);
  ASSERT_CUDA(driver_->CtxSynchronize());
  EXPECT_EQ(Seen(second_), 1);
  Fill(2, first_);
  ASSERT_CUDA(driver_->StreamSynchronize(first_));
  ASSERT_CUDA(copy(memory_ + kBlock - 1, memory_, 1));
  ASSERT_CUDA(fill(memory_ + kBlock - 1, 3, 1));
  EXPECT_EQ(Seen(second_), 2);
  ASSERT_CUDA(driver_->CtxSynchronize());
  EXPECT_EQ(Seen(second_), 3);
}

// Nor for the last part of a copy from pageable memory, and for copies on the device by address.
TEST_F(StreamTest, TheHostWaitsForCopiesToItAndFromPinnedMemoryAlone) {
  void* const library = ::dlopen(Built(SIMULATED_CUDA_LIBRARY).c_str(), RTLD_NOW | RTLD_NOLOAD);
  const auto copy = reinterpret_cast<CUresult (*)(CUdeviceptr, CUdeviceptr, size_t)>(::dlsym(library, "cuMemcpy"));
  const auto to_device =
      reinterpret_cast<CUresult (*)(CUdeviceptr, const void*, size_t)>(::dlsym(library, "cuMemcpyHtoD_v2"));
  uint8_t byte = 1;
  ASSERT_CUDA(to_device(memory_ + kBlock - 1, &byte, 1));
  byte = 9;
  EXPECT_EQ(Seen(second_), 0xCD);
  ASSERT_CUDA(driver_->CtxSynchronize());
  EXPECT_EQ(Seen(second_), 1) << "the source was read before the call returned";
  byte = 2;
  ASSERT_CUDA(copy(memory_, reinterpret_cast<CUdeviceptr>(&byte), 1));
  ASSERT_CUDA(copy(memory_ + kBlock - 1, memory_, 1));
  EXPECT_EQ(Seen(second_), 1);
  ASSERT_CUDA(copy(reinterpret_cast<CUdeviceptr>(&byte), memory_ + kBlock - 1, 1));
  EXPECT_EQ(Seen(second_), 2) << "the copy to the host was waited for, and all before it on its stream";
  void* pinned = nullptr;
  ASSERT_CUDA(driver_->MemHostAlloc(&pinned, 1, 0));
  *static_cast<uint8_t*>(pinned) = 3;
  ASSERT_CUDA(to_device(memory_ + kBlock - 1, pinned, 1));
  EXPECT_EQ(Seen(second_), 3);
  ASSERT_CUDA(driver_->MemFreeHost(pinned));
}

TEST_F(StreamTest, AWaitCapturesTheLatestRecord) {
  Fill(1, first_);
  ASSERT_CUDA(driver_->EventRecord(event_, first_));
  ASSERT_CUDA(driver_->StreamWaitEvent(second_, event_, 0));
  Fill(2, first_);
  ASSERT_CUDA(driver_->EventRecord(event_, first_));
  EXPECT_EQ(Seen(second_), 1) << "the later record does not matter";
}

TEST_F(StreamTest, AnEventThatWasNeverRecordedIsComplete) {
  EXPECT_EQ(driver_->EventQuery(event_), CUDA_SUCCESS);
  EXPECT_EQ(driver_->EventSynchronize(event_), CUDA_SUCCESS);
  ASSERT_CUDA(driver_->StreamWaitEvent(second_, event_, 0));
  EXPECT_EQ(Seen(second_), 0xCD);
}

TEST_F(StreamTest, AQueryIsNotReadyOnceAndThenMakesProgress) {
  Fill(1, first_);
  ASSERT_CUDA(driver_->EventRecord(event_, first_));
  EXPECT_EQ(driver_->EventQuery(event_), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(driver_->EventQuery(event_), CUDA_SUCCESS);
  EXPECT_EQ(Seen(second_), 1);
  ASSERT_CUDA(driver_->EventRecord(event_, first_));
  EXPECT_EQ(driver_->EventQuery(event_), CUDA_ERROR_NOT_READY) << "the new record is pending";
}

TEST_F(StreamTest, TheHostBufferIsReadLate) {
  uint8_t source = 5;
  ASSERT_CUDA(driver_->MemcpyHtoDAsync(memory_ + kBlock - 1, &source, 1, first_));
  source = 6;
  EXPECT_EQ(Seen(first_), 6) << "the source was reused before the copy";
}

TEST_F(StreamTest, BlockingStreamsAndTheLegacyStreamKeepTheirOrder) {
  CUstream blocking = nullptr;
  ASSERT_CUDA(driver_->StreamCreate(&blocking, 0));
  Fill(1, blocking);
  EXPECT_EQ(Seen(nullptr), 1) << "the legacy stream runs after earlier work";
  Fill(2, reinterpret_cast<CUstream>(kStreamLegacy));
  Fill(3, blocking);
  EXPECT_EQ(Seen(blocking), 3) << "and before later work";
  Fill(4, nullptr);
  EXPECT_EQ(Seen(reinterpret_cast<CUstream>(kStreamPerThread)), 4);
  Fill(5, blocking);
  EXPECT_EQ(Seen(first_), 4) << "a non-blocking stream is not ordered";
  CUstream another = nullptr;
  ASSERT_CUDA(driver_->StreamCreate(&another, 0));
  EXPECT_EQ(Seen(another), 4) << "two blocking streams are not ordered";
  ASSERT_CUDA(driver_->StreamSynchronize(blocking));
  ASSERT_CUDA(driver_->StreamDestroy(blocking));
  ASSERT_CUDA(driver_->StreamDestroy(another));
}

TEST_F(StreamTest, DestroyingAStreamKeepsItsWork) {
  CUstream gone = nullptr;
  ASSERT_CUDA(driver_->StreamCreate(&gone, kStreamNonBlocking));
  Fill(1, gone);
  ASSERT_CUDA(driver_->EventRecord(event_, gone));
  ASSERT_CUDA(driver_->StreamDestroy(gone));
  EXPECT_EQ(Seen(first_), 0xCD);
  ASSERT_CUDA(driver_->EventSynchronize(event_));
  EXPECT_EQ(Seen(first_), 1);
}

TEST_F(StreamTest, AnEventOfTheWholeContext) {
  Fill(1, first_);
  ASSERT_CUDA(driver_->MemsetD8Async(memory_, 2, 1, second_));
  ASSERT_CUDA(driver_->CtxRecordEvent(context_, event_));
  EXPECT_EQ(driver_->EventQuery(event_), CUDA_ERROR_NOT_READY);
  const long before = Counter("copies_done");
  ASSERT_CUDA(driver_->EventSynchronize(event_));
  EXPECT_EQ(Counter("copies_done") - before, 2);
}

TEST_F(StreamTest, AWaitForAnotherThreadsStream) {
  Fill(1, first_);
  ASSERT_CUDA(driver_->EventRecord(event_, first_));
  std::thread threads[8];
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      EXPECT_EQ(driver_->CtxSetCurrent(context_), CUDA_SUCCESS);
      CUstream own = nullptr;
      EXPECT_EQ(driver_->StreamCreate(&own, kStreamNonBlocking), CUDA_SUCCESS);
      EXPECT_EQ(driver_->StreamWaitEvent(own, event_, 0), CUDA_SUCCESS);
      EXPECT_EQ(Seen(own), 1);
      EXPECT_EQ(driver_->StreamDestroy(own), CUDA_SUCCESS);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(StreamTest, Refusals) {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  uint8_t byte = 0;
  const auto nonsense = reinterpret_cast<CUstream>(uintptr_t{4096});
  EXPECT_EQ(driver_->StreamCreate(&stream, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver_->StreamSynchronize(nonsense), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver_->StreamWaitEvent(first_, event_, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver_->StreamWaitEvent(first_, nullptr, 0), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver_->EventCreate(&event, kEventInterprocess), CUDA_ERROR_INVALID_VALUE) << "with timing";
  EXPECT_EQ(driver_->EventCreate(&event, 8), CUDA_ERROR_INVALID_VALUE);
  CUipcEventHandle handle{};
  EXPECT_EQ(driver_->IpcGetEventHandle(&handle, event_), CUDA_ERROR_INVALID_HANDLE) << "not interprocess";
  EXPECT_EQ(driver_->IpcOpenEventHandle(&event, handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver_->MemcpyDtoHAsync(&byte, memory_ + kBlock, 1, first_), CUDA_ERROR_INVALID_VALUE) << "past the end";
  EXPECT_EQ(driver_->MemcpyDtoHAsync(&byte, memory_ + kBlock, 0, first_), CUDA_SUCCESS) << "nothing to do";
  EXPECT_EQ(
      driver_->MemcpyAsync(reinterpret_cast<CUdeviceptr>(&byte), reinterpret_cast<CUdeviceptr>(&handle), 1, first_),
      CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StreamTest, AnEventAndAStreamOfDifferentContextsAreRefused) {
  CUcontext other = nullptr;
  CUevent event = nullptr;
  ASSERT_CUDA(driver_->DevicePrimaryCtxRetain(&other, 1));
  ASSERT_CUDA(driver_->CtxSetCurrent(other));
  ASSERT_CUDA(driver_->EventCreate(&event, kEventDisableTiming));
  EXPECT_EQ(driver_->EventRecord(event, first_), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_CUDA(driver_->EventDestroy(event));
  ASSERT_CUDA(driver_->CtxSetCurrent(nullptr));
  EXPECT_EQ(driver_->EventCreate(&event, kEventDisableTiming), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_CUDA(driver_->CtxSetCurrent(context_));
  ASSERT_CUDA(driver_->DevicePrimaryCtxRelease(1));
}

TEST_F(StreamTest, AnInterprocessEventIsExportedByItsThreadAndNotOpenedHere) {
  CUevent event = nullptr;
  CUevent opened = nullptr;
  CUipcEventHandle handle{};
  ASSERT_CUDA(driver_->EventCreate(&event, kEventInterprocess | kEventDisableTiming));
  std::thread([&] { EXPECT_EQ(driver_->IpcGetEventHandle(&handle, event), CUDA_ERROR_INVALID_HANDLE); }).join();
  ASSERT_CUDA(driver_->IpcGetEventHandle(&handle, event));
  EXPECT_EQ(driver_->IpcOpenEventHandle(&opened, handle), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_CUDA(driver_->EventDestroy(event));
}

TEST_F(StreamTest, TheNumberOfInterprocessEventsIsLimited) {
  std::vector<CUevent> events;
  CUevent event = nullptr;
  while (driver_->EventCreate(&event, 0) == CUDA_SUCCESS) events.push_back(event);
  EXPECT_EQ(events.size(), 999u) << "the fixture has one";
  EXPECT_EQ(driver_->EventCreate(&event, 0), CUDA_ERROR_OUT_OF_MEMORY);
  for (const CUevent each : events) ASSERT_CUDA(driver_->EventDestroy(each));
}

TEST_F(StreamTest, AWriteThroughAReadOnlyMappingPoisonsTheProcess) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const CUdeviceptr mapped = Mapped(CU_MEM_ACCESS_FLAGS_PROT_READ);
    ASSERT_CUDA(driver_->MemsetD8Async(mapped, 1, 1, first_));
    EXPECT_EQ(driver_->StreamSynchronize(first_), CUDA_ERROR_ILLEGAL_ADDRESS);
    CUdeviceptr other = 0;
    EXPECT_EQ(driver_->MemAlloc(&other, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(driver_->StreamSynchronize(second_), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_TRUE(IsSticky(driver_->Check(driver_->CtxSynchronize(), "cuCtxSynchronize")));
    EXPECT_EQ(driver_->NameOf(CUDA_ERROR_ILLEGAL_ADDRESS), "CUDA_ERROR_ILLEGAL_ADDRESS");
    std::_Exit(::testing::Test::HasFailure() ? EXIT_FAILURE : EXIT_SUCCESS);
  });
}

TEST_F(StreamTest, AccessIsCheckedWhenTheCopyHappens) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const CUdeviceptr mapped = Mapped(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ASSERT_CUDA(driver_->MemsetD8Async(mapped, 1, 1, first_));
    const CUmemAccessDesc none{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_NONE};
    ASSERT_CUDA(driver_->MemSetAccess(mapped, kBlock, &none, 1));
    EXPECT_EQ(driver_->StreamSynchronize(first_), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

TEST_F(StreamTest, Violations) {
  EXPECT_DEATH(
      {
        driver_->EventDestroy(event_);
        driver_->EventDestroy(event_);
      },
      "VIOLATION in cuEventDestroy_v2: destroyed twice");
  EXPECT_DEATH(
      {
        driver_->StreamDestroy(first_);
        driver_->StreamSynchronize(first_);
      },
      "VIOLATION in cuStreamSynchronize: this stream was destroyed");
  EXPECT_DEATH(
      {
        driver_->StreamDestroy(first_);
        driver_->StreamDestroy(first_);
      },
      "VIOLATION in cuStreamDestroy_v2: destroyed twice");
  EXPECT_DEATH(
      {
        driver_->EventDestroy(event_);
        driver_->EventRecord(event_, first_);
      },
      "VIOLATION in cuEventRecord: this event was destroyed");
  EXPECT_DEATH(
      {
        driver_->MemcpyDtoDAsync(memory_, memory_ + 1, 2, first_);
        driver_->StreamSynchronize(first_);
      },
      "VIOLATION in cuMemcpyDtoDAsync_v2: source and destination overlap");
  EXPECT_DEATH(
      {
        driver_->MemFree(memory_);
        driver_->DevicePrimaryCtxRelease(0);
      },
      "last release with live events");
}

class CaptureTest : public StreamTest {
 protected:
  // Makes a call that a capture in GLOBAL mode forbids, from another thread in that mode.
  CUresult MapInAnotherThread(CUstreamCaptureMode mode) {
    return std::async(std::launch::async,
                      [this, mode] {
                        CUstreamCaptureMode exchanged = mode;
                        EXPECT_EQ(driver_->ThreadExchangeStreamCaptureMode(&exchanged), CUDA_SUCCESS);
                        EXPECT_EQ(exchanged, CU_STREAM_CAPTURE_MODE_GLOBAL);
                        CUdeviceptr address = 0;
                        const CUresult result = driver_->MemAddressReserve(&address, kBlock, 0, 0, 0);
                        if (result == CUDA_SUCCESS) driver_->MemAddressFree(address, kBlock);
                        return result;
                      })
        .get();
  }
  template <class Function>
  Function Find(const char* name) {
    return reinterpret_cast<Function>(
        ::dlsym(::dlopen(Built(SIMULATED_CUDA_LIBRARY).c_str(), RTLD_NOW | RTLD_NOLOAD), name));
  }
  void Begin() { Begin(first_, CU_STREAM_CAPTURE_MODE_GLOBAL); }
  void Begin(CUstream stream, CUstreamCaptureMode mode) {
    const auto begin = Find<CUresult (*)(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
    ASSERT_CUDA(begin(stream, mode));
  }
  CUresult End() { return End(first_); }
  CUresult End(CUstream stream) {
    void* graph = nullptr;
    return Find<CUresult (*)(CUstream, void**)>("cuStreamEndCapture")(stream, &graph);
  }
  // Makes a call in the relaxed mode, in which potentially unsafe calls do not invalidate a capture.
  template <class Function>
  CUresult Relaxed(Function function) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_EQ(driver_->ThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    const CUresult result = function();
    EXPECT_EQ(driver_->ThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    return result;
  }
};

TEST_F(CaptureTest, ARelaxedThreadDisturbsNoCapture) {
  Begin();
  EXPECT_EQ(MapInAnotherThread(CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(End(), CUDA_SUCCESS);
}

TEST_F(CaptureTest, AnyOtherThreadInvalidatesIt) {
  Begin();
  EXPECT_EQ(MapInAnotherThread(CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(End(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, AnEventOfTheContextInvalidatesItEvenWhenRelaxed) {
  Begin(first_, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(Relaxed([&] { return driver_->CtxRecordEvent(context_, event_); }), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(End(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, WaitingForTheContextInvalidatesItEvenWhenRelaxed) {
  Begin(first_, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(Relaxed([&] { return driver_->CtxSynchronize(); }), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(End(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, WaitingForRecordedWorkInvalidatesIt) {
  Begin();
  EXPECT_EQ(Relaxed([&] { return driver_->StreamSynchronize(first_); }), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(End(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, QueryingRecordedWorkInvalidatesIt) {
  for (const auto ask : {&Driver::EventQuery, &Driver::EventSynchronize}) {
    Begin();
    ASSERT_CUDA(driver_->EventRecord(event_, first_));
    EXPECT_EQ(Relaxed([&] { return ((*driver_).*ask)(event_); }), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_EQ(End(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ASSERT_CUDA(driver_->EventRecord(event_, first_));
    EXPECT_EQ(driver_->EventSynchronize(event_), CUDA_SUCCESS);
  }
}

TEST_F(CaptureTest, CallsOnAnotherGpuDoNotInvalidateIt) {
  Begin();
  CUcontext other = nullptr;
  ASSERT_CUDA(driver_->DevicePrimaryCtxRetain(&other, 1));
  ASSERT_CUDA(driver_->CtxSetCurrent(other));
  EXPECT_EQ(Relaxed([&] { return driver_->CtxSynchronize(); }), CUDA_SUCCESS);
  CUevent event = nullptr;
  ASSERT_CUDA(driver_->EventCreate(&event, kEventDisableTiming));
  EXPECT_EQ(Relaxed([&] { return driver_->CtxRecordEvent(other, event); }), CUDA_SUCCESS);
  EXPECT_EQ(Relaxed([&] { return driver_->CtxSynchronize(); }), CUDA_SUCCESS);  // no work may remain there
  ASSERT_CUDA(Relaxed([&] { return driver_->EventDestroy(event); }));
  ASSERT_CUDA(driver_->CtxSetCurrent(context_));
  EXPECT_EQ(End(), CUDA_SUCCESS);
  ASSERT_CUDA(driver_->DevicePrimaryCtxRelease(1));
}

// Querying the default stream about a capture that it would have to wait for is the only query that does not invalidate
// it.
TEST_F(CaptureTest, TheDefaultStreamReportsABlockingCaptureAndUsingItInvalidatesIt) {
  CUstream blocking = nullptr;
  ASSERT_CUDA(driver_->StreamCreate(&blocking, 0));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  ASSERT_CUDA(driver_->StreamIsCapturing(nullptr, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  Begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(driver_->StreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  ASSERT_CUDA(driver_->StreamIsCapturing(blocking, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(End(blocking), CUDA_SUCCESS);

  const std::vector<std::function<CUresult()>> uses = {
      [&] { return driver_->StreamSynchronize(nullptr); },
      [&] { return driver_->EventRecord(event_, nullptr); },
      [&] { return driver_->StreamWaitEvent(nullptr, event_, 0); },
      [&] { return driver_->MemsetD8Async(memory_, 1, 16, nullptr); },
  };
  for (const auto& use : uses) {
    Begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_EQ(Relaxed(use), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQ(End(blocking), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  // The default stream does not report a capture on a non-blocking stream.
  Begin(first_, CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_CUDA(driver_->StreamIsCapturing(nullptr, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(Relaxed([&] { return driver_->StreamSynchronize(nullptr); }), CUDA_SUCCESS);
  EXPECT_EQ(End(), CUDA_SUCCESS);
  ASSERT_CUDA(driver_->StreamDestroy(blocking));
}

}  // namespace
}  // namespace arraybridge::cuda
