// SPDX-License-Identifier: Apache-2.0
// Puts and reads of arrays while a stream is being captured into a graph. A stream under capture records the work
// queued to it and does not run it, so no array may depend on that work. The tests run in this process, through a real
// arraybridged, on the simulated driver.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <arraybridge/broker.h>
#include <arraybridge/device.h>

#include "client/memory/cuda/cuda_devices.h"
#include "tests/integration/filled.h"
#include "tests/integration/processes.h"

namespace arraybridge {
namespace {

using std::chrono::seconds;

constexpr int64_t kBytes = 1 << 20;
const Device kFirstGpu{kDeviceCuda, 0, {}};
const ArraySpec kSpec{.type = {1, 8, 1}, .dtype = "uint8", .shape = {kBytes}, .strides = {}};

const std::string& Library() {
  static const std::string library = DriverUnderTest(SIMULATED_CUDA_LIBRARY);
  return library;
}

// Work runs only when a thread waits for it.
struct Machine {
  Machine() { ::setenv("SIMULATED_CUDA", "devices=1;held", 1); }
};

// Matches the code and reason of an error.
auto FailsWith(Code code, const std::string& reason) {
  return testing::AllOf(testing::Property(&Status::code, code), testing::Property(&Status::reason, reason));
}

template <class Function>
Function Find(const char* name) {
  return reinterpret_cast<Function>(::dlsym(::dlopen(Library().c_str(), RTLD_NOW | RTLD_NOLOAD), name));
}

// The ways in which an array in this process's GPU memory is put.
enum class Way : uint8_t {
  kQueued,   // later work of its stream is ordered after the copy
  kCopied,   // the copy is waited for, because the array states only its stream
  kLegacy,   // on the default stream, which would wait for the captured one
  kToHost,   // into host memory
  kInPlace,  // it already lies in the broker's memory
};

class CaptureTest : Machine, public DaemonTest, public ::testing::WithParamInterface<Way> {
 protected:
  CaptureTest() : DaemonTest({"--cuda-driver", Library()}) {}

  void SetUp() override {
    if (!IsSimulated(Library())) GTEST_SKIP() << "only the strict driver reports calls that break a capture";
    broker_.emplace(Options());
    devices_ = *CudaDevices::OfThisProcess(Library());
    inside_.emplace(*devices_->Enter(0));
    const bool blocking = GetParam() == Way::kLegacy;
    ASSERT_EQ(driver().StreamCreate(&captured_, blocking ? 0 : cuda::kStreamNonBlocking), cuda::CUDA_SUCCESS);
    ASSERT_EQ(driver().StreamCreate(&free_, cuda::kStreamNonBlocking), cuda::CUDA_SUCCESS);
    ASSERT_EQ(driver().MemAlloc(&memory_, kBytes), cuda::CUDA_SUCCESS);
    driver().MemsetD8Async(memory_, 7, kBytes, free_);
    ASSERT_EQ(driver().StreamSynchronize(free_), cuda::CUDA_SUCCESS);
  }
  void TearDown() override {
    if (!broker_) return;
    broker_.reset();
    for (const cuda::CUstream stream : {captured_, free_}) {
      driver().StreamSynchronize(stream);
      driver().StreamDestroy(stream);
    }
    driver().MemFree(memory_);
  }
  Broker::Options Options() const { return {.address = directory_, .timeout = seconds(30), .cuda_driver = Library()}; }
  const cuda::Driver& driver() const { return devices_->driver(); }

  void Begin() {
    using BeginCapture = cuda::CUresult (*)(cuda::CUstream, cuda::CUstreamCaptureMode);
    ASSERT_EQ(Find<BeginCapture>("cuStreamBeginCapture_v2")(captured_, cuda::CU_STREAM_CAPTURE_MODE_GLOBAL),
              cuda::CUDA_SUCCESS);
  }
  cuda::CUresult End() {
    return Find<cuda::CUresult (*)(cuda::CUstream, void**)>("cuStreamEndCapture")(captured_, nullptr);
  }
  View Source(cuda::CUstream stream, bool queued) const {
    View view = *Describe(reinterpret_cast<void*>(memory_), kSpec.type, kSpec.shape, {}, kFirstGpu, false, nullptr);
    view.stream = reinterpret_cast<uintptr_t>(stream);
    view.stream_is_producers = queued;
    return view;
  }
  Status PutInPlace() {
    if (!room_) {
      auto room = broker_->Empty({&kSpec, 1}, {.device = kFirstGpu});
      if (!room.ok()) return room.status();
      room_.emplace(*std::move(room));
      driver().MemsetD8Async(reinterpret_cast<cuda::CUdeviceptr>(room_->views()[0].data), 7, kBytes, free_);
      driver().StreamSynchronize(free_);
    }
    View view = room_->views()[0];
    view.stream = reinterpret_cast<uintptr_t>(captured_);
    const auto placement = broker_->PlacementOf({&view, 1});
    return placement ? broker_->Publish(*placement, {.name = "frame"}).status() : NotFound("no placement");
  }
  Status Put() {
    if (GetParam() == Way::kInPlace) return PutInPlace();
    const bool legacy = GetParam() == Way::kLegacy;
    const View view = Source(legacy ? reinterpret_cast<cuda::CUstream>(cuda::kStreamLegacy) : captured_,
                             legacy || GetParam() == Way::kQueued);
    Broker::PlaceOptions options;
    if (GetParam() == Way::kToHost) options.device = Device{};
    const auto placement = broker_->Place({&view, 1}, options);
    return placement.ok() ? broker_->Publish(*placement, {.name = "frame"}).status() : placement.status();
  }

  std::optional<Broker> broker_;
  std::optional<Placement> room_;
  const CudaDevices* devices_ = nullptr;
  std::optional<CudaScope> inside_;
  cuda::CUstream captured_ = nullptr;
  cuda::CUstream free_ = nullptr;
  cuda::CUdeviceptr memory_ = 0;
};

TEST_P(CaptureTest, WhatACapturedStreamMakesIsRefusedAndTheCaptureGoesOn) {
  for (const bool declared : {false, true}) {
    SCOPED_TRACE(declared);
    std::optional<CaptureScope> scope;
    if (declared) scope.emplace();
    ASSERT_TRUE(broker_->Flush().ok());
    ASSERT_NO_FATAL_FAILURE(Begin());
    const Status refused = Put();
    EXPECT_THAT(refused, FailsWith(Code::kFailedPrecondition, "STREAM_CAPTURING"));
    EXPECT_THAT(refused.message(), testing::HasSubstr("before or after the capture")) << "the message names a remedy";
    EXPECT_EQ(End(), cuda::CUDA_SUCCESS);
    EXPECT_THAT(broker_->Acquire({.name = "frame"}).status(), FailsWith(Code::kNotFound, "SHARE_NOT_FOUND"));
  }
  ASSERT_TRUE(Put().ok());
  const auto frame = broker_->Acquire({.name = "frame"});
  ASSERT_TRUE(frame.ok()) << frame.status().ToString();
  EXPECT_TRUE(IsFilled(frame->views[0], kBytes, 7));
}

std::string NameOf(const ::testing::TestParamInfo<Way>& way) {
  constexpr const char* kNames[] = {"Queued", "Copied", "Legacy", "ToHost", "InPlace"};
  return kNames[static_cast<size_t>(way.param)];
}

INSTANTIATE_TEST_SUITE_P(Ways, CaptureTest,
                         ::testing::Values(Way::kQueued, Way::kCopied, Way::kLegacy, Way::kToHost, Way::kInPlace),
                         NameOf);

using OneWayCaptureTest = CaptureTest;

TEST_P(OneWayCaptureTest, NothingIsQueuedOfAShareThatIsRefused) {
  const auto queued = Find<long (*)(const char*)>("simulated_cuda_counter");
  const std::vector<View> sources{Source(free_, true), Source(captured_, true)};
  ASSERT_NO_FATAL_FAILURE(Begin());
  const long before = queued("cuMemcpyAsync");
  EXPECT_THAT(broker_->Place(sources).status(), FailsWith(Code::kFailedPrecondition, "STREAM_CAPTURING"));
  EXPECT_EQ(queued("cuMemcpyAsync"), before);
  EXPECT_EQ(End(), cuda::CUDA_SUCCESS);
}

TEST_P(OneWayCaptureTest, AStreamThatTakesNoPartIsPutFrom) {
  const View source = Source(free_, true);
  ASSERT_NO_FATAL_FAILURE(Begin());
  const auto placement = broker_->Place({&source, 1});
  ASSERT_TRUE(placement.ok()) << placement.status().ToString();
  EXPECT_TRUE(broker_->Publish(*placement, {.name = "frame"}).ok());
  const auto frame = broker_->Acquire({.name = "frame"});
  ASSERT_TRUE(frame.ok()) << frame.status().ToString();
  EXPECT_TRUE(IsFilled(frame->views[0], kBytes, 7));
  EXPECT_EQ(End(), cuda::CUDA_SUCCESS);
}

// A graph depends on nothing outside of it, so the bytes that it reads must be written before it can run.
TEST_P(OneWayCaptureTest, WhoReadsInACaptureGetsBytesThatAreThere) {
  const View source = Source(free_, true);
  const auto placement = broker_->Place({&source, 1});
  ASSERT_TRUE(placement.ok()) << placement.status().ToString();
  ASSERT_TRUE(broker_->Publish(*placement, {.name = "frame"}).ok());
  const auto frame = broker_->Acquire({.name = "frame"});
  ASSERT_TRUE(frame.ok()) << frame.status().ToString();
  ASSERT_NE(frame->views[0].fence, nullptr) << "no thread has waited yet";
  ASSERT_NO_FATAL_FAILURE(Begin());
  const Status ordered = OrderAfterProducer(frame->views[0], reinterpret_cast<uintptr_t>(captured_));
  EXPECT_TRUE(ordered.ok()) << ordered.ToString();
  EXPECT_EQ(Find<cuda::CUresult (*)(cuda::CUstream)>("cuStreamQuery")(free_), cuda::CUDA_SUCCESS)
      << "this thread waited";
  // The same for an array that is not a share.
  const Status foreign = OrderAfterProducer(source, reinterpret_cast<uintptr_t>(captured_));
  EXPECT_TRUE(foreign.ok()) << foreign.ToString();
  EXPECT_EQ(End(), cuda::CUDA_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(One, OneWayCaptureTest, ::testing::Values(Way::kQueued));

}  // namespace
}  // namespace arraybridge
