// SPDX-License-Identifier: Apache-2.0
// The HostReach of a GPU says whether its work can use host memory where it lies.
#pragma once

#include <cstdint>
#include <string>

namespace arraybridge {

struct HostReach {
  enum class Kind : uint8_t {
    kNone,       // `why` says what the driver lacks
    kMapped,     // over its bus, such as PCIe
    kOneMemory,  // the memory of the host is the GPU's own, too
  };
  Kind kind = Kind::kNone;
  std::string why{};
};

// "has one memory with the host", for people.
std::string TextOf(const HostReach& reach);

}  // namespace arraybridge
