// SPDX-License-Identifier: Apache-2.0
// Arrays in which all bytes have one value, in any kind of memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <arraybridge/view.h>

namespace arraybridge {

// REQUIRES: `bytes` outlives the view.
inline View ViewOf(const std::vector<uint8_t>& bytes) {
  View view;
  view.data = const_cast<uint8_t*>(bytes.data());
  view.type = {1, 8, 1};
  view.dtype = "uint8";
  view.shape = {static_cast<int64_t>(bytes.size())};
  view.strides = {1};
  return view;
}

inline bool IsFilled(const View& view, size_t bytes, uint8_t fill) {
  const auto copy = view.device.type == kDeviceCpu ? Result<View>(view) : CopyToHeap(view);
  if (!copy.ok() || copy->nbytes() != bytes) return false;
  const auto* const found = static_cast<const uint8_t*>(copy->data);
  return std::all_of(found, found + bytes, [fill](uint8_t byte) { return byte == fill; });
}

}  // namespace arraybridge
