// SPDX-License-Identifier: Apache-2.0
// Host memory that devices read and write in place: registered, at the address that devices have for it.
#include <sys/mman.h>

#include <cstring>

#include "tests/simulated_cuda/driver_fixture.h"

namespace arraybridge::cuda {
namespace {

constexpr size_t kBytes = 8192;
constexpr uint32_t kMappedReadOnly = kMemHostRegisterDeviceMap | kMemHostRegisterReadOnly | kMemHostRegisterPortable;

class MappedMemoryTest : public DriverFixture {
 protected:
  void SetUp() override {
    DriverFixture::SetUp();
    memory_ = Map(PROT_READ | PROT_WRITE);
    std::memset(memory_, 7, kBytes);
  }
  void TearDown() override {
    ::munmap(memory_, kBytes);
    DriverFixture::TearDown();
  }
  static uint8_t* Map(int protection) {
    void* const mapped = ::mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    return static_cast<uint8_t*>(mapped);
  }
  CUdeviceptr OnDevice(uint32_t flags) {
    EXPECT_EQ(driver_->MemHostRegister(memory_, kBytes, flags), CUDA_SUCCESS);
    CUdeviceptr device = 0;
    EXPECT_EQ(driver_->MemHostGetDevicePointer(&device, memory_, 0), CUDA_SUCCESS);
    return device;
  }
  template <class T>
  T Attribute(CUpointer_attribute attribute, CUdeviceptr address) {
    T value{};
    EXPECT_EQ(driver_->PointerGetAttribute(&value, attribute, address), CUDA_SUCCESS) << attribute;
    return value;
  }

  uint8_t* memory_ = nullptr;
};

TEST_F(MappedMemoryTest, DevicesHaveAnAddressOfTheirOwn) {
  const CUdeviceptr device = OnDevice(kMappedReadOnly);
  const auto host = reinterpret_cast<CUdeviceptr>(memory_);
  EXPECT_NE(device, host);
  CUdeviceptr inside = 0;
  ASSERT_CUDA(driver_->MemHostGetDevicePointer(&inside, memory_ + 5, 0));
  EXPECT_EQ(inside, device + 5);
  EXPECT_EQ(Read(device + 5, 2), (std::vector<uint8_t>{7, 7}));
  memory_[6] = 8;
  EXPECT_EQ(Read(device + 5, 2), (std::vector<uint8_t>{7, 8})) << "the same bytes, not a copy";
  ASSERT_CUDA(driver_->MemHostUnregister(memory_));
}

TEST_F(MappedMemoryTest, Attributes) {
  const CUdeviceptr device = OnDevice(kMappedReadOnly);
  const auto host = reinterpret_cast<CUdeviceptr>(memory_);
  for (const CUdeviceptr each : {host, device}) {
    EXPECT_EQ(Attribute<uint32_t>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, each + 5), uint32_t{CU_MEMORYTYPE_HOST});
    EXPECT_EQ(Attribute<uint64_t>(CU_POINTER_ATTRIBUTE_HOST_POINTER, each + 5), host + 5);
    EXPECT_EQ(Attribute<uint64_t>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, each + 5), device + 5);
    EXPECT_EQ(Attribute<uint64_t>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, each + 5), each);
    EXPECT_EQ(Attribute<uint64_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, each), kBytes);
    EXPECT_EQ(Attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, each), 0);
    EXPECT_EQ(Attribute<int>(CU_POINTER_ATTRIBUTE_MAPPED, each), 1);
  }
  CUdeviceptr base = 0;
  size_t bytes = 0;
  ASSERT_CUDA(driver_->MemGetAddressRange(&base, &bytes, device + 5));
  EXPECT_EQ(base, device);
  EXPECT_EQ(bytes, kBytes);
  ASSERT_CUDA(driver_->MemHostUnregister(memory_));
  uint64_t value = 0;
  EXPECT_EQ(driver_->PointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_HOST_POINTER, device), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MappedMemoryTest, WhatIsNotMappedHasNoAddressForDevices) {
  CUdeviceptr device = 0;
  EXPECT_EQ(driver_->MemHostGetDevicePointer(&device, memory_, 0), CUDA_ERROR_INVALID_VALUE) << "not registered";
  ASSERT_CUDA(driver_->MemHostRegister(memory_, kBytes, kMemHostRegisterPortable));
  EXPECT_EQ(driver_->MemHostGetDevicePointer(&device, memory_, 0), CUDA_ERROR_INVALID_VALUE) << "not for devices";
  EXPECT_EQ(driver_->PointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                         reinterpret_cast<CUdeviceptr>(memory_)),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_CUDA(driver_->MemHostUnregister(memory_));
  device = OnDevice(kMemHostRegisterDeviceMap);
  EXPECT_EQ(driver_->MemHostGetDevicePointer(&device, memory_, 1), CUDA_ERROR_INVALID_VALUE) << "flags";
  EXPECT_EQ(driver_->MemHostGetDevicePointer(&device, memory_ + kBytes, 0), CUDA_ERROR_INVALID_VALUE) << "the end";
  EXPECT_EQ(driver_->MemHostGetDevicePointer(&device, reinterpret_cast<void*>(device), 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CUDA(driver_->MemHostUnregister(memory_));
  EXPECT_EQ(driver_->MemHostRegister(memory_ + 1, 8, kMappedReadOnly), CUDA_ERROR_INVALID_VALUE) << "not a page";
}

TEST_F(MappedMemoryTest, AReadOnlyMappingIsMappedReadOnly) {
  uint8_t* const constant = Map(PROT_READ);
  EXPECT_EQ(driver_->MemHostRegister(constant, kBytes, kMemHostRegisterDeviceMap), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CUDA(driver_->MemHostRegister(constant, kBytes, kMappedReadOnly));
  ASSERT_CUDA(driver_->MemHostUnregister(constant));
  ASSERT_EQ(::munmap(constant, kBytes), 0);
}

TEST_F(MappedMemoryTest, CopiesWriteWritableMemoryAlone) {
  const CUdeviceptr device = OnDevice(kMemHostRegisterDeviceMap);
  const CUdeviceptr own = Mapped(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASSERT_CUDA(driver_->MemsetD8Async(own, 9, 4, nullptr));
  ASSERT_CUDA(driver_->MemcpyDtoDAsync(device, own, 4, nullptr));
  ASSERT_CUDA(driver_->MemsetD8Async(device + 4, 3, 2, nullptr));
  EXPECT_EQ(memory_[0], 7) << "queued";
  ASSERT_CUDA(driver_->CtxSynchronize());
  EXPECT_EQ(std::vector<int>(memory_, memory_ + 7), (std::vector<int>{9, 9, 9, 9, 3, 3, 7}));
  ASSERT_CUDA(driver_->MemcpyAsync(own, device, 8, nullptr));
  ASSERT_CUDA(driver_->CtxSynchronize());
  EXPECT_EQ(Read(own, 6), (std::vector<uint8_t>{9, 9, 9, 9, 3, 3}));
  EXPECT_EQ(driver_->MemcpyAsync(own, device + kBytes - 1, 2, nullptr), CUDA_ERROR_INVALID_VALUE) << "beyond its end";
  ASSERT_CUDA(driver_->MemHostUnregister(memory_));
  Unmap(own);
}

TEST_F(MappedMemoryTest, AWriteToReadOnlyMemoryIsAStickyError) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    auto loaded = LoadWith("");
    CUcontext context = nullptr;
    ASSERT_CUDA(loaded->DevicePrimaryCtxRetain(&context, 0));
    ASSERT_CUDA(loaded->CtxSetCurrent(context));
    uint8_t* const constant = Map(PROT_READ);
    CUdeviceptr device = 0;
    ASSERT_CUDA(loaded->MemHostRegister(constant, kBytes, kMappedReadOnly));
    ASSERT_CUDA(loaded->MemHostGetDevicePointer(&device, constant, 0));
    ASSERT_CUDA(loaded->MemsetD8Async(device, 1, 1, nullptr));
    EXPECT_EQ(loaded->CtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(loaded->CtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

TEST_F(MappedMemoryTest, MemoryThatIsNotPortableIsOneDevices) {
  const CUdeviceptr device = OnDevice(kMemHostRegisterDeviceMap);
  CUcontext other = nullptr;
  ASSERT_CUDA(driver_->DevicePrimaryCtxRetain(&other, 1));
  ASSERT_CUDA(driver_->CtxSetCurrent(other));
  CUdeviceptr there = 0;
  EXPECT_EQ(driver_->MemHostGetDevicePointer(&there, memory_, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, device), 0);
  ASSERT_CUDA(driver_->CtxSetCurrent(context_));
  ASSERT_CUDA(driver_->DevicePrimaryCtxRelease(1));
  ASSERT_CUDA(driver_->MemHostUnregister(memory_));
}

TEST_F(MappedMemoryTest, Violations) {
  const auto read = [this] {
    const CUdeviceptr from = OnDevice(kMappedReadOnly);
    driver_->MemcpyDtoDAsync(Mapped(CU_MEM_ACCESS_FLAGS_PROT_READWRITE), from + 5, 1, nullptr);
  };
  EXPECT_DEATH(
      {
        read();
        driver_->MemHostUnregister(memory_);
      },
      "VIOLATION in cuMemHostUnregister: queued work still uses this memory");
  EXPECT_DEATH(
      {
        OnDevice(kMappedReadOnly);
        ::munmap(memory_, kBytes);
        driver_->MemHostUnregister(memory_);
      },
      "VIOLATION in cuMemHostUnregister: it was unmapped while registered");
  EXPECT_DEATH({ *reinterpret_cast<volatile uint8_t*>(OnDevice(kMappedReadOnly)) = 1; }, "")
      << "the host cannot use the device's address";
}

struct Machine {
  const char* settings;
  int pageable, by_page_tables, registers, maps, integrated;
};

class MachineTest : public FreshDriverTest, public ::testing::WithParamInterface<Machine> {};

TEST_P(MachineTest, SaysHowItsDeviceReachesHostMemory) {
  const Machine& machine = GetParam();
  EXPECT_FINE_IN_FRESH_PROCESS({
    auto loaded = LoadWith(machine.settings);
    const auto attribute = [&](CUdevice_attribute which) {
      int value = -1;
      EXPECT_EQ(loaded->DeviceGetAttribute(&value, which, 0), CUDA_SUCCESS);
      return value;
    };
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS), machine.pageable);
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES), machine.by_page_tables);
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED), machine.registers);
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY), machine.maps);
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED), machine.integrated);
    CUcontext context = nullptr;
    ASSERT_CUDA(loaded->DevicePrimaryCtxRetain(&context, 0));
    ASSERT_CUDA(loaded->CtxSetCurrent(context));
    alignas(4096) static uint8_t memory[4096];
    const CUresult expected = machine.registers + machine.maps == 2 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    EXPECT_EQ(loaded->MemHostRegister(memory, sizeof memory, kMemHostRegisterDeviceMap), expected);
  });
}

INSTANTIATE_TEST_SUITE_P(All, MachineTest,
                         ::testing::Values(Machine{"", 0, 0, 1, 1, 0}, Machine{"one_memory=0", 1, 1, 1, 1, 0},
                                           Machine{"one_memory=0;off=100", 1, 0, 1, 1, 0},
                                           Machine{"integrated=0", 0, 0, 1, 1, 1}, Machine{"off=99", 0, 0, 0, 1, 0},
                                           Machine{"off=19", 0, 0, 1, 0, 0}));

}  // namespace
}  // namespace arraybridge::cuda
