// SPDX-License-Identifier: Apache-2.0
#include "daemon/mover/digest.h"

#define XXH_INLINE_ALL  // the library is not linked
#include <xxhash.h>

#include <array>
#include <cstdio>

namespace arraybridge::daemon {

struct Digest::State {
  XXH3_state_t hash;
};

Digest::Digest() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->hash); }
Digest::~Digest() = default;

void Digest::Add(std::string_view bytes) { XXH3_128bits_update(&state_->hash, bytes.data(), bytes.size()); }

Digest::Value Digest::value() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->hash);
  return {hash.low64, hash.high64};
}

uint64_t Digest::OfText(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

std::string TextOf(const Digest::Value& value) {
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx",
                static_cast<unsigned long long>(value.high),  // NOLINT(google-runtime-int): printf's type
                static_cast<unsigned long long>(value.low));  // NOLINT(google-runtime-int)
  return text.data();
}

}  // namespace arraybridge::daemon
