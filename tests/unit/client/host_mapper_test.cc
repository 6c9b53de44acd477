// SPDX-License-Identifier: Apache-2.0
#include "client/memory/host/host_mapper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <string>

namespace arraybridge {
namespace {

constexpr uint64_t kSize = 3 * 4096;
constexpr int kNoResize = F_SEAL_GROW | F_SEAL_SHRINK;

Handle Memory(int seals, int mode = O_RDONLY) {
  UniqueFd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(file.get(), kSize), 0);
  const std::string text = "abc";
  EXPECT_EQ(::pwrite(file.get(), text.data(), text.size(), 4096 + 256), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
  Handle handle;
  handle.descriptor.reset(::open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), mode | O_CLOEXEC));
  handle.arena = 1;
  handle.size = handle.arena_size = kSize;
  return handle;
}

Code CodeOf(const Handle& handle, Access access) {
  return MakeHostMapper()->Map(handle, Device{}, access).status().code();
}

TEST(HostMapperTest, MapsSealedMemoryForReading) {
  const Handle handle = Memory(kNoResize | F_SEAL_FUTURE_WRITE);
  auto mapping = MakeHostMapper()->Map(handle, Device{}, Access::kRead);
  ASSERT_TRUE(mapping.ok()) << mapping.status().ToString();
  EXPECT_EQ((*mapping)->size(), kSize);
  EXPECT_EQ(std::memcmp((*mapping)->data() + 4096 + 256, "abc", 3), 0);
  EXPECT_EQ(CodeOf(Memory(kNoResize | F_SEAL_WRITE), Access::kRead), Code::kOk);
}

TEST(HostMapperTest, RefusesAReaderWhatIsNotSealed) {
  EXPECT_EQ(CodeOf(Memory(0), Access::kRead), Code::kFailedPrecondition);
  EXPECT_EQ(CodeOf(Memory(kNoResize), Access::kRead), Code::kFailedPrecondition);
  EXPECT_EQ(CodeOf(Memory(F_SEAL_GROW | F_SEAL_FUTURE_WRITE), Access::kRead), Code::kFailedPrecondition);
  EXPECT_EQ(CodeOf(Memory(F_SEAL_SHRINK | F_SEAL_WRITE), Access::kRead), Code::kFailedPrecondition);
}

TEST(HostMapperTest, RefusesWhatIsNotWhatTheHandleSays) {
  Handle larger = Memory(kNoResize | F_SEAL_WRITE);
  larger.arena_size = kSize + 1;
  EXPECT_EQ(CodeOf(larger, Access::kRead), Code::kFailedPrecondition);
  Handle pipe = Memory(kNoResize | F_SEAL_WRITE);
  pipe.descriptor.reset(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(CodeOf(pipe, Access::kRead), Code::kFailedPrecondition);
  Handle nothing;
  nothing.arena_size = kSize;
  EXPECT_EQ(CodeOf(nothing, Access::kRead), Code::kFailedPrecondition);
  EXPECT_EQ(CodeOf(Memory(0, O_RDONLY), Access::kWrite), Code::kFailedPrecondition);
  EXPECT_EQ(MakeHostMapper()->Map(nothing, Device{kDeviceCuda, 0, {}}, Access::kRead).status().code(),
            Code::kUnimplemented);
}

TEST(HostMapperTest, AProducerWritesWhatOthersRead) {
  const Handle handle = Memory(0, O_RDWR);
  auto mapping = MakeHostMapper()->Map(handle, Device{}, Access::kWrite);
  ASSERT_TRUE(mapping.ok());
  const int32_t numbers[] = {1, 2, 3};
  std::memcpy((*mapping)->data() + 512, numbers, sizeof numbers);
  int32_t read[3];
  ASSERT_EQ(::pread(handle.descriptor.get(), read, sizeof read, 512), static_cast<ssize_t>(sizeof read));
  EXPECT_EQ(std::memcmp(read, numbers, sizeof read), 0);
}

TEST(HostMapperTest, APrivateWriteStaysPrivate) {
  const Handle handle = Memory(kNoResize | F_SEAL_WRITE);
  const auto mapper = MakeHostMapper();
  auto shared = mapper->Map(handle, Device{}, Access::kRead);
  auto mine = mapper->MapPrivate(handle, 4096 + 256, 512);
  ASSERT_TRUE(shared.ok() && mine.ok());
  EXPECT_EQ(std::memcmp((*mine)->data(), "abc", 3), 0);
  std::memcpy((*mine)->data(), "xyz", 3);
  EXPECT_EQ(std::memcmp((*shared)->data() + 4096 + 256, "abc", 3), 0);
  EXPECT_EQ(mapper->MapPrivate(handle, kSize, 1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(mapper->MapPrivate(handle, 256, UINT64_MAX).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(mapper->MapPrivate(handle, 0, 0).status().code(), Code::kInvalidArgument);
}

TEST(HostMapperTest, WhatIsWrittenAfterDetachStaysHere) {
  Handle handle = Memory(0, O_RDWR);
  auto mapping = MakeHostMapper()->Map(handle, Device{}, Access::kWrite);
  ASSERT_TRUE(mapping.ok());
  // As the broker does after the producer has mapped the arena.
  ASSERT_EQ(::fcntl(handle.descriptor.get(), F_ADD_SEALS, kNoResize | F_SEAL_FUTURE_WRITE), 0);
  (*mapping)->Detach();
  std::byte* const bytes = (*mapping)->data() + 4096 + 256;
  EXPECT_EQ(std::memcmp(bytes, "abc", 3), 0);
  std::memcpy(bytes, "xyz", 3);
  char read[3];
  ASSERT_EQ(::pread(handle.descriptor.get(), read, sizeof read, 4096 + 256), static_cast<ssize_t>(sizeof read));
  EXPECT_EQ(std::memcmp(read, "abc", 3), 0);
}

}  // namespace
}  // namespace arraybridge
