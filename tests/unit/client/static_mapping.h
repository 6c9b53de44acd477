// SPDX-License-Identifier: Apache-2.0
// A mapping of this process's own memory, for tests that carve ranges from it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "client/memory/memory_mapper.h"

namespace arraybridge {

class StaticMapping final : public Mapping {
 public:
  static constexpr uint64_t kBytes = 1 << 16;

  std::byte* data() const override {
    static std::array<std::byte, kBytes> memory;
    return memory.data();
  }
  uint64_t size() const override { return kBytes; }
  Status CopyFrom(const View&, uint64_t) override { return Unimplemented("nobody copies"); }
  std::shared_ptr<DeviceEvent> Now() override { return nullptr; }
  void Detach() noexcept override {}
};

// Its bytes are `data`, as if the kernel had mapped them there.
class MappingAt final : public Mapping {
 public:
  MappingAt(std::byte* data, uint64_t size) : data_(data), size_(size) {}
  std::byte* data() const override { return data_; }
  uint64_t size() const override { return size_; }
  Status CopyFrom(const View&, uint64_t) override { return Unimplemented("nobody copies"); }
  std::shared_ptr<DeviceEvent> Now() override { return nullptr; }
  void Detach() noexcept override {}

 private:
  std::byte* const data_;
  const uint64_t size_;
};

}  // namespace arraybridge
