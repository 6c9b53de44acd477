// SPDX-License-Identifier: Apache-2.0
// What cannot be loaded, launched or finished, and that the error names it.
#include <cstdio>

#include "tests/simulated_cuda/guests/kernel_fixture.h"

namespace arraybridge::cuda {
namespace {

class KernelErrorTest : public KernelFixture {
 protected:
  // The result of loading, and its message.
  CUresult Refused(const std::string& text, std::string* message) {
    char buffer[512] = "";
    unsigned int options[] = {simulated::kJitErrorLogBuffer, simulated::kJitErrorLogBufferSize};
    void* values[] = {buffer, reinterpret_cast<void*>(sizeof(buffer))};
    CUmodule module = nullptr;
    const CUresult result = GUEST(cuModuleLoadDataEx)(&module, text.c_str(), 2, options, values);
    *message = buffer;
    return result;
  }
};

TEST_F(KernelErrorTest, AnUnknownDirectiveIsNamedWithItsLine) {
  std::string message;
  EXPECT_EQ(Refused(Text("\n.novelty 3;\n"), &message), simulated::CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(message, "line 5: the directive '.novelty' is unknown to the simulated driver");
  EXPECT_EQ(Refused(Kernel("mov.u32 %r0, 1"), &message), simulated::CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(message, "line 10: ',' is expected instead of 'ret'");
  EXPECT_EQ(Refused(Text(".visible .entry k()\n{\nret;\n"), &message), simulated::CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(message, "line 7: the body of 'k' has no end");
}

TEST_F(KernelErrorTest, MachineCodeAndOtherImagesAreRefused) {
  std::string message;
  EXPECT_EQ(Refused("\x7f"
                    "ELF and so on",
                    &message),
            simulated::CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(message, "the image has machine code, and the simulated driver runs PTX alone");
  EXPECT_EQ(Refused("a poem", &message), simulated::CUDA_ERROR_INVALID_IMAGE);
}

struct Unknown {
  const char* instruction;
  const char* message;
};

TEST_F(KernelErrorTest, AKernelWithAnUnknownInstructionIsRefusedWhenItIsLaunched) {
  for (const Unknown& each : {
           Unknown{"wgmma.fence.sync.aligned;",
                   "line 9: 'wgmma.fence.sync.aligned' is not simulated: the opcode is unknown"},
           Unknown{"add.odd.u32 %r0, 1, 2;", "line 9: 'add.odd.u32' is not simulated: the modifier '.odd' is unknown"},
           Unknown{"add.f8 %r0, 1, 2;", "line 9: 'add.f8' is not simulated: a type is missing"},
           Unknown{"add.u32 %r0, 1;", "line 9: 'add.u32' is not simulated: operand 3 is missing"},
           Unknown{"add.u32 %r0, 1, 2, 3;", "line 9: 'add.u32' is not simulated: it has more operands than are known"},
           Unknown{"add.u32 %r0, %novel, 1;", "line 9: 'add.u32' is not simulated: the register '%novel' is unknown"},
           Unknown{"bra $nowhere;", "line 9: 'bra' is not simulated: the label '$nowhere' is unknown"},
           Unknown{"call absent;", "line 9: 'call' is not simulated: the function 'absent' is unknown"},
       }) {
    const CUfunction function = Load(Kernel(each.instruction));
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(Launch(function, {}, {&memory_}), CUDA_ERROR_NOT_SUPPORTED) << each.instruction;
    const std::string printed = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(printed.find(each.message), std::string::npos) << printed;
  }
}

TEST_F(KernelErrorTest, OtherKernelsOfItsModuleRun) {
  const std::string text = Text(".entry k() { wgmma.fence.sync.aligned; ret; }\n.entry good() { ret; }\n");
  EXPECT_EQ(Launch(Load(text, "good"), {}, {}), CUDA_SUCCESS);
  ASSERT_CUDA(driver_->StreamSynchronize(stream_));
}

TEST_F(KernelErrorTest, LaunchesThatNoDeviceCanRunAreRefused) {
  const CUfunction function = Load(Kernel(""));
  for (const Shape& shape : {Shape{.blocks = 0}, Shape{.threads = 0}, Shape{.threads = 1025}}) {
    EXPECT_EQ(Launch(function, shape, {&memory_}), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(GUEST(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Launch(nullptr, {}, {&memory_}), CUDA_ERROR_INVALID_HANDLE);
  int value = 0;
  ASSERT_CUDA(GUEST(cuFuncSetAttribute)(function, simulated::kFunctionMaxDynamicShared, 100000));
  ASSERT_CUDA(GUEST(cuFuncGetAttribute)(&value, simulated::kFunctionMaxDynamicShared, function));
  EXPECT_EQ(value, 100000);
  EXPECT_EQ(Launch(function, {.shared_bytes = 100000}, {&memory_}), CUDA_SUCCESS);
  EXPECT_EQ(GUEST(cuFuncSetAttribute)(function, simulated::kFunctionMaxDynamicShared, 300000),
            CUDA_ERROR_INVALID_VALUE);
}

struct Fault {
  const char* body;
  CUresult result;
  const char* message;
};

class KernelFaultTest : public FreshDriverTest, public ::testing::WithParamInterface<Fault> {};

// A kernel of two threads, without parameters, in a process of its own.
void RunFaulty(const Fault& fault) {
  const auto driver = LoadWith("");
  ASSERT_TRUE(driver.ok()) << driver.status().ToString();
  CUcontext context = nullptr;
  ASSERT_CUDA(driver->DevicePrimaryCtxRetain(&context, 0));
  ASSERT_CUDA(driver->CtxSetCurrent(context));
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  const std::string text =
      ".version 8.0\n.target sm_90\n.entry k()\n{\n.reg .b32 %r<4>; .reg .b64 %d<4>; .reg .pred %p;\n" +
      std::string(fault.body) + "\n}\n";
  ASSERT_CUDA(GUEST(cuModuleLoadData)(&module, text.c_str()));
  ASSERT_CUDA(GUEST(cuModuleGetFunction)(&function, module, "k"));
  ASSERT_CUDA(GUEST(cuLaunchKernel)(function, 1, 1, 1, 2, 1, 1, 0, nullptr, nullptr, nullptr));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(driver->CtxSynchronize(), fault.result);
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(printed.find(fault.message), std::string::npos) << printed;
  EXPECT_EQ(driver->CtxSynchronize(), fault.result) << "it stays";
}

TEST_P(KernelFaultTest, IsAnErrorOfTheContextAndTheProcessLives) {
  EXPECT_FINE_IN_FRESH_PROCESS({ RunFaulty(GetParam()); });
}

INSTANTIATE_TEST_SUITE_P(
    Faults, KernelFaultTest,
    ::testing::Values(
        Fault{"st.global.u32 [4096], 1;", CUDA_ERROR_ILLEGAL_ADDRESS,
              "kernel 'k': a write of 4 bytes at 0x1000 is not allowed in line 6 -> 700"},
        Fault{"ld.shared.u32 %r0, [1024];", CUDA_ERROR_ILLEGAL_ADDRESS, "a read of 4 bytes at 0x400 is not allowed"},
        Fault{"mov.u64 %d0, 0; ld.u32 %r0, [%d0];", CUDA_ERROR_ILLEGAL_ADDRESS,
              "a read of 4 bytes at 0 is not allowed"},
        Fault{"ld.global.u32 %r0, [4098];", CUDA_ERROR_MISALIGNED_ADDRESS, "0x1002 is not a multiple of 4"},
        Fault{"trap;", CUDA_ERROR_LAUNCH_FAILED, "the kernel trapped"},
        Fault{"mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 0; @%p bar.sync 0, 64; ret;", CUDA_ERROR_LAUNCH_TIMEOUT,
              "threads wait for others that do not arrive"},
        Fault{"bar.sync 16;", CUDA_ERROR_ILLEGAL_INSTRUCTION, "a block has no such barrier"}));

}  // namespace
}  // namespace arraybridge::cuda
