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

}  // namespace arraybridge
