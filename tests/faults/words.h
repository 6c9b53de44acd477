// SPDX-License-Identifier: Apache-2.0
// The content of the fault tests' arrays: 64-bit words that depend on a seed and on their index, so that a missing,
// stale or foreign byte is found wherever it lies.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <arraybridge/view.h>

#include "proto/boundary/result.h"

namespace arraybridge {

inline uint64_t Word(uint64_t seed, uint64_t index) {
  uint64_t x = seed * 0x9E3779B97F4A7C15ull + index + 1;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  return x ^ (x >> 27);
}

// REQUIRES: the view is in host memory.
inline void FillWords(const View& view, uint64_t seed) {
  auto* const words = static_cast<uint64_t*>(view.data);
  for (uint64_t i = 0; i < view.elements(); ++i) words[i] = Word(seed, i);
}

inline Status CheckWords(const View& view, uint64_t seed) {
  const auto copy = view.device.type == kDeviceCpu ? Result<View>(view) : CopyToHeap(view);
  if (!copy.ok()) return copy.status();
  const auto* words = static_cast<const uint64_t*>(copy->data);
  for (uint64_t i = 0; i < view.elements(); ++i) {
    if (words[i] != Word(seed, i)) return Internal("word ", i, " of ", view.elements(), " is wrong");
  }
  return Ok();
}

// The n-th array of a share has the words of `seed` + n.
inline Status CheckWords(const std::vector<View>& views, uint64_t seed) {
  for (const View& view : views) AB_RETURN_IF_ERROR(CheckWords(view, seed++));
  return Ok();
}

}  // namespace arraybridge
