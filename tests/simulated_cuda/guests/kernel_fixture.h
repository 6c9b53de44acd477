// SPDX-License-Identifier: Apache-2.0
// Loads PTX into the driver under test and runs kernels of it, for tests.
#pragma once

#include <string>
#include <vector>

#include "tests/simulated_cuda/driver_fixture.h"
#include "tests/simulated_cuda/guests/loaded_calls.h"

namespace arraybridge::cuda {

using simulated::CUfunction;
using simulated::CUmodule;

struct Shape {
  uint32_t blocks = 1;
  uint32_t threads = 1;
  uint32_t shared_bytes = 0;
};

class KernelFixture : public DriverFixture {
 protected:
  void SetUp() override {
    DriverFixture::SetUp();
    ASSERT_CUDA(driver_->MemAlloc(&memory_, kBlock));
    ASSERT_CUDA(driver_->StreamCreate(&stream_, kStreamNonBlocking));
  }
  void TearDown() override {
    EXPECT_EQ(driver_->CtxSynchronize(), CUDA_SUCCESS);
    for (const CUmodule module : modules_) EXPECT_EQ(GUEST(cuModuleUnload)(module), CUDA_SUCCESS);
    EXPECT_EQ(driver_->StreamDestroy(stream_), CUDA_SUCCESS);
    EXPECT_EQ(driver_->MemFree(memory_), CUDA_SUCCESS);
    EXPECT_EQ(Counter("live_modules"), 0);
    DriverFixture::TearDown();
  }

  // A module of this text, with the head that each needs.
  static std::string Text(const std::string& text) { return ".version 8.0\n.target sm_90\n.address_size 64\n" + text; }
  // A kernel `k` with one parameter, whose body begins with its value in %out and the thread's number in %i, and can
  // use registers %p, %h, %r, %d, %f, %g of each kind, 0 to 9. The body begins in line 9.
  static std::string Kernel(const std::string& body, const std::string& before = "") {
    return Text(before + ".visible .entry k(.param .u64 k_out)\n{\n" +
                ".reg .pred %p<10>; .reg .b16 %h<10>; .reg .b32 %r<10>; .reg .b64 %d<10>; .reg .f32 %f<10>;\n" +
                ".reg .f64 %g<10>; .reg .b64 %out; .reg .b32 %i; ld.param.u64 %out, [k_out]; mov.u32 %i, %tid.x;\n" +
                "\n" + body + "\nret;\n}\n");
  }

  CUfunction Load(const std::string& text, const char* name = "k") {
    CUmodule module = nullptr;
    EXPECT_EQ(GUEST(cuModuleLoadData)(&module, text.c_str()), CUDA_SUCCESS);
    if (module == nullptr) return nullptr;
    modules_.push_back(module);
    CUfunction function = nullptr;
    EXPECT_EQ(GUEST(cuModuleGetFunction)(&function, module, name), CUDA_SUCCESS);
    return function;
  }
  CUresult Launch(CUfunction function, const Shape& shape, std::vector<void*> parameters) {
    return GUEST(cuLaunchKernel)(function, shape.blocks, 1, 1, shape.threads, 1, 1, shape.shared_bytes, stream_,
                                 parameters.data(), nullptr);
  }
  // Runs the kernel of this body with the memory's address.
  CUresult Run(const std::string& body, const Shape& shape = {}, const std::string& before = "") {
    const CUresult launched = Launch(Load(Kernel(body, before)), shape, {&memory_});
    return launched == CUDA_SUCCESS ? driver_->StreamSynchronize(stream_) : launched;
  }
  template <class T>
  std::vector<T> Values(size_t count) {
    const std::vector<uint8_t> bytes = Read(memory_, count * sizeof(T));
    std::vector<T> values(count);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  template <class T>
  void Write(const std::vector<T>& values) {
    ASSERT_CUDA(driver_->MemcpyHtoDAsync(memory_, values.data(), values.size() * sizeof(T), stream_));
    ASSERT_CUDA(driver_->StreamSynchronize(stream_));
  }

  CUdeviceptr memory_ = 0;
  CUstream stream_ = nullptr;
  std::vector<CUmodule> modules_;
};

}  // namespace arraybridge::cuda
