// SPDX-License-Identifier: Apache-2.0
// The Driver without a driver: errors of loading other libraries, and the conversion of results.
// tests/simulated_cuda/driver_load_test.cc loads a driver.
#include <gtest/gtest.h>

#include "proto/boundary/cuda/driver.h"

namespace arraybridge::cuda {
namespace {

TEST(DriverTest, TheErrorForAnAbsentLibraryOmitsItsPath) {
  const auto driver = Driver::Load("/nonexistent/secret/libcuda.so.1");
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.status().code(), Code::kUnavailable);
  EXPECT_EQ(driver.status().reason(), "CUDA_LIBRARY_ABSENT");
  EXPECT_EQ(driver.status().message().find("secret"), std::string::npos) << driver.status().ToString();
  EXPECT_NE(driver.status().message().find("No such file"), std::string::npos) << driver.status().ToString();
}

TEST(DriverTest, ALibraryThatIsNotADriverIsRefused) {
  const auto driver = Driver::Load("libm.so.6");
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.status().reason(), "CUDA_SYMBOL_MISSING");
}

CUresult NoDevice(CUresult, const char** name) {
  *name = "CUDA_ERROR_SOMETHING";
  return CUDA_SUCCESS;
}

TEST(DriverTest, AResultBecomesAStatusWithNamesAndNumbers) {
  Driver driver;
  EXPECT_TRUE(driver.Check(CUDA_SUCCESS, "cuMemCreate", "2097152 bytes").ok());
  const Status unnamed = driver.Check(CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate");
  EXPECT_EQ(unnamed.message(), "cuMemCreate: CUDA_ERROR_2 (2)");
  driver.GetErrorName = NoDevice;
  const Status full = driver.Check(CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate", 2097152, " bytes");
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_EQ(full.message(), "cuMemCreate: CUDA_ERROR_SOMETHING (2): 2097152 bytes");
  EXPECT_EQ(full.reason(), "CUDA_ERROR_SOMETHING");
}

struct Row {
  CUresult result;
  Code code;
};

TEST(DriverTest, EveryResultHasItsCode) {
  const Driver driver;
  const Row rows[] = {
      {CUDA_ERROR_INVALID_VALUE, Code::kInternal},
      {CUDA_ERROR_OUT_OF_MEMORY, Code::kResourceExhausted},
      {CUDA_ERROR_NOT_INITIALIZED, Code::kUnavailable},
      {CUDA_ERROR_DEINITIALIZED, Code::kUnavailable},
      {CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, Code::kUnimplemented},
      {CUDA_ERROR_DEVICE_UNAVAILABLE, Code::kUnavailable},
      {CUDA_ERROR_NO_DEVICE, Code::kUnavailable},
      {CUDA_ERROR_INVALID_DEVICE, Code::kInternal},
      {CUDA_ERROR_INVALID_CONTEXT, Code::kFailedPrecondition},
      {CUDA_ERROR_MAP_FAILED, Code::kUnavailable},
      {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, Code::kUnimplemented},
      {CUDA_ERROR_OPERATING_SYSTEM, Code::kUnavailable},
      {CUDA_ERROR_INVALID_HANDLE, Code::kInternal},
      {CUDA_ERROR_ILLEGAL_ADDRESS, Code::kAborted},
      {CUDA_ERROR_TOO_MANY_PEERS, Code::kUnavailable},
      {CUDA_ERROR_NOT_PERMITTED, Code::kPermissionDenied},
      {CUDA_ERROR_NOT_SUPPORTED, Code::kUnimplemented},
      {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, Code::kUnavailable},
      {CUDA_ERROR_UNKNOWN, Code::kInternal},
  };
  for (const Row& row : rows) EXPECT_EQ(driver.Check(row.result, "x").code(), row.code) << row.result;
}

TEST(DriverTest, ARefusedArgumentOfAnotherProcessIsInvalidArgument) {
  const Driver driver;
  for (const CUresult result : {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_HANDLE}) {
    EXPECT_EQ(driver.CheckInput(result, "cuIpcOpenMemHandle").code(), Code::kInvalidArgument) << result;
  }
  EXPECT_EQ(driver.CheckInput(CUDA_ERROR_OUT_OF_MEMORY, "x").code(), Code::kResourceExhausted);
}

TEST(DriverTest, StickyErrorsAreRecognised) {
  const Driver driver;
  for (const uint32_t number : {226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 911}) {
    EXPECT_TRUE(IsSticky(static_cast<CUresult>(number))) << number;
    EXPECT_TRUE(IsSticky(driver.Check(static_cast<CUresult>(number), "x"))) << number;
  }
  for (const uint32_t number : {0, 1, 2, 201, 400, 600, 701, 709, 711, 713, 720, 900, 999}) {
    EXPECT_FALSE(IsSticky(static_cast<CUresult>(number))) << number;
  }
  EXPECT_FALSE(IsSticky(driver.Check(CUDA_ERROR_OUT_OF_MEMORY, "x")));
  EXPECT_FALSE(IsSticky(Status(Code::kAborted, "another reason")));
}

}  // namespace
}  // namespace arraybridge::cuda
