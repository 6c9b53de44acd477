// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/siphash.h"

#include <bit>
#include <cstring>

namespace arraybridge {
namespace {

static_assert(std::endian::native == std::endian::little, "words are loaded in memory order");

class State {
 public:
  // The constants spell "somepseudorandomlygeneratedbytes"; the second differs for an output of 128 bits.
  explicit State(const SipKey& key)
      : v0_(key.low ^ 0x736f6d6570736575),
        v1_(key.high ^ 0x646f72616e646f6d ^ 0xEE),
        v2_(key.low ^ 0x6c7967656e657261),
        v3_(key.high ^ 0x7465646279746573) {}

  void Compress(uint64_t word) {
    v3_ ^= word;
    Round();
    Round();
    v0_ ^= word;
  }
  uint64_t FinishLow() {
    v2_ ^= 0xEE;
    return Finish();
  }
  uint64_t FinishHigh() {
    v1_ ^= 0xDD;
    return Finish();
  }

 private:
  uint64_t Finish() {
    for (int i = 0; i < 4; ++i) Round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }
  void Round() {
    v0_ += v1_;
    v2_ += v3_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ = std::rotl(v0_, 32) + v3_;
    v2_ += v1_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v2_ = std::rotl(v2_, 32);
  }

  uint64_t v0_;
  uint64_t v1_;
  uint64_t v2_;
  uint64_t v3_;
};

// The last bytes, at most seven, with the length in the highest byte.
uint64_t LastWord(std::string_view rest, size_t length) {
  uint64_t word = uint64_t{length} << 56;
  for (size_t i = 0; i < rest.size(); ++i) word |= uint64_t{static_cast<uint8_t>(rest[i])} << (8 * i);
  return word;
}

}  // namespace

Hash128 SipHash128(const SipKey& key, std::string_view text) {
  constexpr size_t kWord = sizeof(uint64_t);
  const size_t length = text.size();
  State state(key);
  for (; text.size() >= kWord; text.remove_prefix(kWord)) {
    uint64_t word = 0;
    std::memcpy(&word, text.data(), kWord);
    state.Compress(word);
  }
  state.Compress(LastWord(text, length));
  const uint64_t low = state.FinishLow();
  return {low, state.FinishHigh()};
}

}  // namespace arraybridge
