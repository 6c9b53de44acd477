// SPDX-License-Identifier: Apache-2.0
// SipHash-2-4 with 128 bits of output (Aumasson, Bernstein: "SipHash: a fast short-input PRF", and its reference test
// vectors). With a random key a client cannot choose names whose hashes collide.
#pragma once

#include <cstdint>
#include <string_view>

namespace arraybridge {

struct SipKey {
  uint64_t low = 0;   // bytes 0 to 7, little-endian
  uint64_t high = 0;  // bytes 8 to 15
};

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;

  friend bool operator==(const Hash128&, const Hash128&) = default;
};

Hash128 SipHash128(const SipKey& key, std::string_view text);

}  // namespace arraybridge
