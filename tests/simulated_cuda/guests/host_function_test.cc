// SPDX-License-Identifier: Apache-2.0
// Functions of the client as work of a stream, and fills with values of several bytes.
#include <future>
#include <thread>

#include "tests/simulated_cuda/guests/kernel_fixture.h"

namespace arraybridge::cuda {
namespace {

using HostFunctionTest = KernelFixture;  // a block of memory and a stream

struct Seen {
  int byte = 0;
  int number = -1;
  std::thread::id thread;
  CUresult of_a_call = CUDA_SUCCESS;
  const Driver* driver = nullptr;
};

void Look(void* data) {
  auto* seen = static_cast<Seen*>(data);
  seen->number = seen->byte;
  seen->thread = std::this_thread::get_id();
  seen->of_a_call = seen->driver->CtxSynchronize();
}

TEST_F(HostFunctionTest, ItRunsLateInItsPlaceAndInAnotherThread) {
  Seen seen{.driver = driver_};
  ASSERT_CUDA(driver_->MemsetD8Async(memory_, 7, 1, stream_));
  ASSERT_CUDA(driver_->MemcpyDtoHAsync(&seen.byte, memory_, 1, stream_));
  ASSERT_CUDA(GUEST(cuLaunchHostFunc)(stream_, &Look, &seen));
  ASSERT_CUDA(driver_->MemsetD8Async(memory_, 8, 1, stream_));
  EXPECT_EQ(seen.number, -1) << "nothing has waited for it";
  ASSERT_CUDA(driver_->StreamSynchronize(stream_));
  EXPECT_EQ(seen.number, 7);
  EXPECT_NE(seen.thread, std::this_thread::get_id());
  EXPECT_EQ(seen.of_a_call, CUDA_ERROR_NOT_PERMITTED) << "it may not call the driver";
  EXPECT_EQ(Read(memory_, 1)[0], 8);
}

TEST_F(HostFunctionTest, ACallbackGetsItsStream) {
  static CUstream seen = nullptr;
  const auto callback = [](CUstream stream, CUresult status, void*) {
    EXPECT_EQ(status, CUDA_SUCCESS);
    seen = stream;
  };
  ASSERT_CUDA(GUEST(cuStreamAddCallback)(stream_, callback, nullptr, 0));
  EXPECT_EQ(seen, nullptr);
  ASSERT_CUDA(driver_->StreamSynchronize(stream_));
  EXPECT_EQ(seen, stream_);
  EXPECT_EQ(GUEST(cuStreamAddCallback)(stream_, callback, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(GUEST(cuLaunchHostFunc)(stream_, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

// A framework waits for the function's effect, and makes no call meanwhile.
TEST_F(FreshDriverTest, ForAGuestItRunsWithoutAWait) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("guest");
    ASSERT_TRUE(driver.ok()) << driver.status().ToString();
    CUcontext context = nullptr;
    ASSERT_CUDA(driver->DevicePrimaryCtxRetain(&context, 0));
    ASSERT_CUDA(driver->CtxSetCurrent(context));
    std::promise<void> called;
    const auto call = [](void* data) { static_cast<std::promise<void>*>(data)->set_value(); };
    ASSERT_CUDA(GUEST(cuLaunchHostFunc)(nullptr, call, &called));
    called.get_future().wait();
    ASSERT_CUDA(driver->CtxSynchronize());
  });
}

TEST_F(FreshDriverTest, WhatRunsByItselfCanBePaused) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const auto driver = LoadWith("guest");
    ASSERT_TRUE(driver.ok()) << driver.status().ToString();
    CUcontext context = nullptr;
    ASSERT_CUDA(driver->DevicePrimaryCtxRetain(&context, 0));
    ASSERT_CUDA(driver->CtxSetCurrent(context));
    std::promise<void> called;
    const auto call = [](void* data) { static_cast<std::promise<void>*>(data)->set_value(); };
    const auto pause = simulated::Loaded<void (*)(int)>("simulated_cuda_pause", SIMULATED_CUDA_LIBRARY);
    pause(3'600'000);
    ASSERT_CUDA(GUEST(cuLaunchHostFunc)(nullptr, call, &called));
    for (int i = 0; i < 10; ++i) EXPECT_EQ(GUEST(cuStreamQuery)(nullptr), CUDA_ERROR_NOT_READY);
    ASSERT_CUDA(driver->CtxSynchronize());
    called.get_future().wait();  // at once: a call has waited
    std::promise<void> again;
    ASSERT_CUDA(GUEST(cuLaunchHostFunc)(nullptr, call, &again));
    pause(0);
    again.get_future().wait();
    ASSERT_CUDA(driver->CtxSynchronize());
  });
}

TEST_F(HostFunctionTest, FillsRepeatValuesOfSeveralBytes) {
  ASSERT_CUDA(GUEST(cuMemsetD32Async)(memory_, 0x04030201, 2, stream_));
  ASSERT_CUDA(driver_->StreamSynchronize(stream_));
  ASSERT_CUDA(GUEST(cuMemsetD16Async)(memory_ + 6, 0x0605, 1, stream_));
  EXPECT_EQ(Read(memory_, 9), (std::vector<uint8_t>{1, 2, 3, 4, 1, 2, 3, 4, 0xCD})) << "the last fill is late";
  ASSERT_CUDA(driver_->StreamSynchronize(stream_));
  EXPECT_EQ(Read(memory_, 9), (std::vector<uint8_t>{1, 2, 3, 4, 1, 2, 5, 6, 0xCD}));
  ASSERT_CUDA(GUEST(cuMemsetD32_v2)(memory_ + 8, 0x0A090807, 1));
  EXPECT_EQ(Read(memory_ + 8, 1)[0], 0xCD) << "nor does the host wait for one without Async";
  EXPECT_EQ(GUEST(cuMemsetD32Async)(memory_ + 2, 0, 1, stream_), CUDA_ERROR_INVALID_VALUE) << "not aligned";
  EXPECT_EQ(GUEST(cuMemsetD16_v2)(memory_ + kBlock - 2, 0, 2), CUDA_ERROR_INVALID_VALUE) << "past the end";
}

TEST_F(HostFunctionTest, TheTimeBetweenEventsNeedsRecordedOnesWithTiming) {
  CUevent begin = nullptr;
  CUevent end = nullptr;
  CUevent untimed = nullptr;
  float milliseconds = -1;
  ASSERT_CUDA(driver_->EventCreate(&begin, 0));
  ASSERT_CUDA(driver_->EventCreate(&end, 0));
  ASSERT_CUDA(driver_->EventCreate(&untimed, kEventDisableTiming));
  const auto elapsed = GUEST(cuEventElapsedTime);
  EXPECT_EQ(elapsed(&milliseconds, begin, end), CUDA_ERROR_INVALID_HANDLE);
  for (const CUevent event : {begin, end, untimed}) ASSERT_CUDA(driver_->EventRecord(event, stream_));
  EXPECT_EQ(elapsed(&milliseconds, begin, end), CUDA_ERROR_NOT_READY);
  ASSERT_CUDA(driver_->StreamSynchronize(stream_));
  EXPECT_EQ(elapsed(&milliseconds, begin, untimed), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_CUDA(elapsed(&milliseconds, begin, end));
  EXPECT_EQ(milliseconds, 0);
  for (const CUevent event : {begin, end, untimed}) ASSERT_CUDA(driver_->EventDestroy(event));
}

}  // namespace
}  // namespace arraybridge::cuda
