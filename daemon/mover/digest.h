// SPDX-License-Identifier: Apache-2.0
// A Digest is XXH3-128 over bytes that come in parts. It finds damage, and does not protect against an attacker.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace arraybridge::daemon {

class Digest {
 public:
  struct Value {
    uint64_t low = 0;
    uint64_t high = 0;
    friend bool operator==(const Value&, const Value&) = default;
  };

  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void Add(std::string_view bytes);
  Value value() const;
  // Of a short text, in 64 bits.
  static uint64_t OfText(std::string_view text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// In hexadecimal, the high half first.
std::string TextOf(const Digest::Value& value);

}  // namespace arraybridge::daemon
