// SPDX-License-Identifier: Apache-2.0
// Input reads a fuzzer's bytes as numbers and strings. It never runs out: after the end all values are zero.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace arraybridge {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }

  template <class Number>
  Number Take() {
    Number number{};
    const std::string_view bytes = TakeBytes(sizeof number);
    if (!bytes.empty()) std::memcpy(&number, bytes.data(), bytes.size());
    return number;
  }

  // At most `size` bytes.
  std::string_view TakeBytes(size_t size) {
    const std::string_view taken = rest_.substr(0, std::min(size, rest_.size()));
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view TakeRest() { return TakeBytes(rest_.size()); }

 private:
  std::string_view rest_;
};

}  // namespace arraybridge
