// SPDX-License-Identifier: Apache-2.0
// Threads together: memory of all spaces, barriers, shuffles, atomics, calls; and what a launch may go wrong with.
#include <numeric>

#include "tests/simulated_cuda/guests/kernel_fixture.h"

namespace arraybridge::cuda {
namespace {

using KernelTest = KernelFixture;

// %d0 becomes the address of the thread's 32-bit element.
constexpr const char* kOwn = "mad.wide.u32 %d0, %i, 4, %out;\n";

TEST_F(KernelTest, ItRunsLateOnItsStream) {
  const CUfunction function = Load(Kernel(std::string(kOwn) + "st.global.u32 [%d0], %i;"));
  ASSERT_CUDA(Launch(function, {.threads = 4}, {&memory_}));
  EXPECT_EQ(Values<uint32_t>(1)[0], 0xCDCDCDCD) << "nothing has waited for it";
  ASSERT_CUDA(driver_->StreamSynchronize(stream_));
  EXPECT_EQ(Values<uint32_t>(4), (std::vector<uint32_t>{0, 1, 2, 3}));
}

TEST_F(KernelTest, ParametersAreReadWhenItIsLaunched) {
  const std::string text = Text(
      ".visible .entry k(.param .align 8 .b8 pair[16], .param .u64 out, .param .u8 last)\n{\n"
      ".reg .b64 %d<4>; .reg .b32 %r<2>; ld.param.u64 %d0, [out]; ld.param.u64 %d1, [pair+8]; ld.param.u8 %r0, "
      "[last];\n"
      "cvt.u64.u32 %d2, %r0; add.u64 %d1, %d1, %d2; st.global.u64 [%d0], %d1;\n}\n");
  struct {
    uint64_t first = 1;
    uint64_t second = 20;
  } pair;
  uint8_t last = 3;
  const CUfunction function = Load(text);
  ASSERT_CUDA(Launch(function, {}, {&pair, &memory_, &last}));
  pair.second = 0;
  ASSERT_CUDA(driver_->StreamSynchronize(stream_));
  EXPECT_EQ(Values<uint64_t>(1)[0], 23U);
  struct {
    uint64_t first = 0;
    uint64_t second = 5;
    CUdeviceptr out = 0;
    uint8_t last = 1;
  } packed{.out = memory_};
  size_t size = sizeof(packed);
  void* extra[] = {reinterpret_cast<void*>(uintptr_t{1}), &packed, reinterpret_cast<void*>(uintptr_t{2}), &size,
                   nullptr};
  ASSERT_CUDA(GUEST(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, extra));
  ASSERT_CUDA(driver_->StreamSynchronize(stream_));
  EXPECT_EQ(Values<uint64_t>(1)[0], 6U);
}

TEST_F(KernelTest, ThreadsAndBlocksHaveNumbers) {
  ASSERT_CUDA(
      Run("mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mad.lo.u32 %r2, %r0, %r1, %i;\n"
          "mad.wide.u32 %d0, %r2, 4, %out; mov.u32 %r3, %nctaid.x; mad.lo.u32 %r3, %r3, 1000, %r2;\n"
          "st.global.u32 [%d0], %r3;",
          {.blocks = 2, .threads = 2}));
  EXPECT_EQ(Values<uint32_t>(4), (std::vector<uint32_t>{2000, 2001, 2002, 2003}));
}

TEST_F(KernelTest, AReductionThroughSharedMemoryWaitsAtBarriers) {
  std::vector<float> numbers(256);
  std::iota(numbers.begin(), numbers.end(), 1.0F);
  Write(numbers);
  ASSERT_CUDA(
      Run(std::string(kOwn) +
              "ld.global.f32 %f0, [%d0]; mov.u32 %r0, part; mad.lo.u32 %r1, %i, 4, %r0; st.shared.f32 [%r1], %f0;\n"
              "mov.u32 %r2, 128;\n"
              "$again: bar.sync 0; setp.ge.u32 %p0, %i, %r2; @%p0 bra $skip;\n"
              "mad.lo.u32 %r3, %r2, 4, %r1; ld.shared.f32 %f1, [%r3]; ld.shared.f32 %f2, [%r1];\n"
              "add.f32 %f1, %f1, %f2; st.shared.f32 [%r1], %f1;\n"
              "$skip: shr.u32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra $again;\n"
              "setp.ne.u32 %p2, %i, 0; @%p2 ret; ld.shared.f32 %f3, [part]; st.global.f32 [%out], %f3;",
          {.threads = 256}, ".shared .align 4 .b8 part[1024];\n"));
  EXPECT_EQ(Values<float>(1)[0], 256.0F * 257 / 2);
}

TEST_F(KernelTest, SharedMemoryThatIsSizedByTheLaunch) {
  const std::string before = ".shared .align 4 .b8 fixed[4];\n.extern .shared .align 8 .b8 dynamic[];\n";
  const std::string body =
      "mov.u32 %r0, dynamic; mad.lo.u32 %r0, %i, 4, %r0; st.shared.u32 [%r0], %i; bar.sync 0;\n"
      "ld.shared.u32 %r1, [dynamic+8]; st.global.u32 [%out], %r1;";
  ASSERT_CUDA(Run(body, {.threads = 4, .shared_bytes = 16}, before));
  EXPECT_EQ(Values<uint32_t>(1)[0], 2U);
  EXPECT_EQ(Launch(Load(Kernel(body, before)), {.shared_bytes = 50000}, {&memory_}), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(KernelTest, LanesReadEachOther) {
  const std::string store = std::string(kOwn) + "st.global.u32 [%d0], %r0;";
  ASSERT_CUDA(Run("shfl.sync.down.b32 %r0|%p0, %i, 2, 31, -1; @!%p0 add.u32 %r0, %r0, 100;" + store, {.threads = 32}));
  EXPECT_EQ(Values<uint32_t>(32)[29], 31U);
  EXPECT_EQ(Values<uint32_t>(32)[30], 130U) << "a lane beyond the last has its own value, and the predicate is false";
  ASSERT_CUDA(Run("shfl.sync.up.b32 %r0, %i, 1, 0, -1;" + store, {.threads = 32}));
  EXPECT_EQ(Values<uint32_t>(32)[5], 4U);
  ASSERT_CUDA(Run("shfl.sync.bfly.b32 %r0, %i, 16, 31, -1;" + store, {.threads = 32}));
  EXPECT_EQ(Values<uint32_t>(32)[3], 19U);
  ASSERT_CUDA(Run("shfl.sync.idx.b32 %r0, %i, 7, 31, -1;" + store, {.threads = 64}));
  EXPECT_EQ(Values<uint32_t>(64)[63], 39U) << "each warp alone";
  ASSERT_CUDA(Run("shfl.sync.down.b32 %r0, %i, 1, 0x181F, -1;" + store, {.threads = 32}));
  EXPECT_EQ(Values<uint32_t>(32)[7], 7U) << "segments of 8 lanes";
}

TEST_F(KernelTest, LanesVote) {
  const std::string store = std::string(kOwn) + "st.global.u32 [%d0], %r0;";
  ASSERT_CUDA(Run("setp.lt.u32 %p0, %i, 3; vote.sync.ballot.b32 %r0, %p0, -1;" + store, {.threads = 32}));
  EXPECT_EQ(Values<uint32_t>(32)[31], 7U);
  ASSERT_CUDA(Run("shr.u32 %r1, %i, 4; match.any.sync.b32 %r0, %r1, -1;" + store, {.threads = 32}));
  EXPECT_EQ(Values<uint32_t>(32)[31], 0xFFFF0000U);
  ASSERT_CUDA(Run("redux.sync.max.u32 %r0, %i, -1;" + store, {.threads = 32}));
  EXPECT_EQ(Values<uint32_t>(32)[0], 31U);
  ASSERT_CUDA(Run("setp.lt.u32 %p0, %i, 3; bar.red.popc.u32 %r0, 0, %p0;" + store, {.threads = 64}));
  EXPECT_EQ(Values<uint32_t>(64)[63], 3U);
}

TEST_F(KernelTest, AMaskNamesTheLanesThatAreWaitedFor) {
  ASSERT_CUDA(
      Run("mov.u32 %r0, 99; setp.ge.u32 %p0, %i, 4; @%p0 bra $store;\n"
          "shfl.sync.idx.b32 %r0, %i, 3, 31, 15;\n$store: " +
              std::string(kOwn) + "st.global.u32 [%d0], %r0;",
          {.threads = 32}));
  EXPECT_EQ(Values<uint32_t>(5), (std::vector<uint32_t>{3, 3, 3, 3, 99}));
}

TEST_F(KernelTest, AtomicsAddUpOverAllThreads) {
  Write(std::vector<uint32_t>(8));
  ASSERT_CUDA(
      Run("atom.global.add.u32 %r0, [%out], %i; red.global.add.f32 [%out+4], 0f3F000000;\n"
          "atom.global.max.s32 %r1, [%out+8], %i; atom.global.inc.u32 %r2, [%out+12], 4;\n"
          "atom.global.cas.b32 %r3, [%out+16], 0, 7; atom.global.exch.b32 %r4, [%out+20], 9;\n"
          "red.relaxed.gpu.global.add.u64 [%out+24], 2;",
          {.blocks = 2, .threads = 8}));
  const auto values = Values<uint32_t>(8);
  EXPECT_EQ(values[0], 56U);
  EXPECT_EQ(Values<float>(2)[1], 8.0F);
  EXPECT_EQ(values[2], 7U);
  EXPECT_EQ(values[3], 1U) << "16 steps of a counter from 0 to 4";
  EXPECT_EQ(values[4], 7U);
  EXPECT_EQ(values[5], 9U);
  EXPECT_EQ(values[6], 32U);
}

TEST_F(KernelTest, VectorsAndNarrowTypes) {
  Write(std::vector<uint32_t>{1, 2, 3, 0xFF});
  ASSERT_CUDA(
      Run("ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%out]; ld.global.s8 %r4, [%out+12];\n"
          "ld.global.nc.v2.u32 {_, %r5}, [%out]; st.global.v2.u32 [%out], {%r2, %r1};\n"
          "st.global.u16 [%out+8], %r4; st.global.u32 [%out+12], %r5;"));
  EXPECT_EQ(Values<uint32_t>(4), (std::vector<uint32_t>{3, 2, 0xFFFF, 2}));
}

TEST_F(KernelTest, EachThreadHasLocalMemory) {
  ASSERT_CUDA(Run(std::string(kOwn) +
                      "{ .local .align 8 .b8 depot[16]; .reg .b64 %d1; mov.u64 %d1, depot; cvta.local.u64 %d2, %d1;\n"
                      "st.local.u32 [%d1+4], %i; }\nld.u32 %r0, [%d2+4]; st.global.u32 [%d0], %r0;",
                  {.threads = 3}));
  EXPECT_EQ(Values<uint32_t>(3), (std::vector<uint32_t>{0, 1, 2}));
}

TEST_F(KernelTest, FunctionsCallThemselvesAndOthers) {
  const std::string before =
      ".func (.param .b32 result) factorial(.param .b32 n)\n{\n"
      ".reg .b32 %r<4>; .reg .pred %p; ld.param.u32 %r0, [n]; mov.u32 %r1, 1; setp.le.u32 %p, %r0, 1; @%p bra $done;\n"
      "{ .param .b32 in; .param .b32 out; sub.u32 %r2, %r0, 1; st.param.b32 [in], %r2;\n"
      "call.uni (out), factorial, (in); ld.param.b32 %r1, [out]; }\n"
      "mul.lo.u32 %r1, %r1, %r0;\n$done: st.param.b32 [result], %r1; ret;\n}\n";
  ASSERT_CUDA(Run(std::string(kOwn) +
                      "{ .param .b32 in; .param .b32 out; st.param.b32 [in], %i; call (out), factorial, (in);\n"
                      "ld.param.b32 %r0, [out]; }\nst.global.u32 [%d0], %r0;",
                  {.threads = 7}, before));
  EXPECT_EQ(Values<uint32_t>(7), (std::vector<uint32_t>{1, 1, 2, 6, 24, 120, 720}));
}

TEST_F(KernelTest, ABranchToOneOfAList) {
  ASSERT_CUDA(Run(std::string(kOwn) +
                      "targets: .branchtargets $zero, $one;\nbrx.idx %i, targets;\n"
                      "$zero: mov.u32 %r0, 10; bra.uni $end;\n$one: mov.u32 %r0, 11;\n$end: st.global.u32 [%d0], %r0;",
                  {.threads = 2}));
  EXPECT_EQ(Values<uint32_t>(2), (std::vector<uint32_t>{10, 11}));
}

TEST_F(KernelTest, VariablesOfTheModuleAreInDeviceMemory) {
  const std::string text = Kernel(
      "ld.const.u32 %r0, [table+4]; ld.global.u64 %d1, [pointer]; ld.u32 %r1, [%d1]; add.u32 %r0, %r0, %r1;\n"
      "st.global.u32 [%out], %r0;",
      ".visible .const .align 4 .u32 table[3] = {5, 6, 7};\n.visible .global .align 4 .u32 number;\n"
      ".global .align 8 .u64 pointer[1] = {generic(number)};\n");
  const CUfunction function = Load(text);
  CUdeviceptr number = 0;
  size_t bytes = 0;
  ASSERT_CUDA(GUEST(cuModuleGetGlobal_v2)(&number, &bytes, modules_.back(), "number"));
  EXPECT_EQ(bytes, 4U);
  EXPECT_EQ(GUEST(cuModuleGetGlobal_v2)(&number, &bytes, modules_.back(), "nothing"), CUDA_ERROR_NOT_FOUND);
  ASSERT_CUDA(driver_->MemsetD8Async(number, 1, 1, stream_));
  ASSERT_CUDA(Launch(function, {}, {&memory_}));
  ASSERT_CUDA(driver_->StreamSynchronize(stream_));
  EXPECT_EQ(Values<uint32_t>(1)[0], 7U);
}

// A kernel of a library runs in every context, with variables of its own in each; one of a module in its context alone.
TEST_F(KernelTest, AKernelOfALibraryRunsOnEachDevice) {
  const std::string text =
      Kernel("ld.global.u32 %r0, [seen]; add.u32 %r0, %r0, 1; st.global.u32 [seen], %r0; st.global.u32 [%out], %r0;",
             ".global .u32 seen;\n");
  CUmodule library = nullptr;
  CUfunction kernel = nullptr;
  ASSERT_CUDA(GUEST(cuLibraryLoadData)(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_CUDA(GUEST(cuLibraryGetKernel)(&kernel, library, "k"));
  const CUfunction of_module = Load(text);
  ASSERT_CUDA(Launch(kernel, {}, {&memory_}));
  ASSERT_CUDA(Launch(kernel, {}, {&memory_}));
  EXPECT_EQ(Values<uint32_t>(1)[0], 0xCDCDCDCD) << "nothing has waited for it";
  ASSERT_CUDA(driver_->StreamSynchronize(stream_));
  EXPECT_EQ(Values<uint32_t>(1)[0], 2);

  CUcontext second = nullptr;
  CUdeviceptr there = 0;
  ASSERT_CUDA(driver_->DevicePrimaryCtxRetain(&second, 1));
  ASSERT_CUDA(driver_->CtxSetCurrent(second));
  ASSERT_CUDA(driver_->MemAlloc(&there, kBlock));
  std::vector<void*> parameters = {&there};
  const auto launch = [&](CUfunction function) {
    return GUEST(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters.data(), nullptr);
  };
  EXPECT_EQ(launch(of_module), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_CUDA(launch(kernel));
  ASSERT_CUDA(driver_->StreamSynchronize(nullptr));
  EXPECT_EQ(Read(there, 1)[0], 1);
  ASSERT_CUDA(driver_->MemFree(there));
  ASSERT_CUDA(GUEST(cuLibraryUnload)(library));
  ASSERT_CUDA(driver_->DevicePrimaryCtxRelease(1));
  ASSERT_CUDA(driver_->CtxSetCurrent(context_));
}

TEST_F(KernelTest, AThreadThatSpinsLetsOthersRun) {
  Write(std::vector<uint32_t>{0, 0});
  ASSERT_CUDA(
      Run("setp.ne.u32 %p0, %i, 0; @%p0 bra $write;\n"
          "$spin: ld.volatile.global.u32 %r0, [%out]; setp.eq.u32 %p1, %r0, 0; @%p1 bra $spin;\n"
          "st.global.u32 [%out+4], 5; ret;\n$write: st.global.u32 [%out], 1;",
          {.threads = 2}));
  EXPECT_EQ(Values<uint32_t>(2)[1], 5U);
}

}  // namespace
}  // namespace arraybridge::cuda
