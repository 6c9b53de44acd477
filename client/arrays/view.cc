// SPDX-License-Identifier: Apache-2.0
// Copying views. A strided source is copied in as few contiguous runs as possible. Contiguous dimensions are merged.
// The innermost dimension is copied by memcpy (stride 1) or element by element, and the outer ones count like an
// odometer.
#include <arraybridge/view.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <cstdlib>
#include <cstring>
#include <new>

#include "client/memory/cuda/cuda_copy.h"
#include "client/memory/layout.h"

namespace arraybridge {

namespace {

struct Dimension {
  int64_t size;
  int64_t stride;  // bytes
};

// The dimensions, outermost first, without those of size 1. Neighbours are merged if the outer one continues the inner
// one.
std::vector<Dimension> Merged(const View& view, int64_t item) {
  std::vector<Dimension> merged;
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] == 1) continue;
    const Dimension next{view.shape[i], view.strides[i] * item};
    if (!merged.empty() && merged.back().stride == next.size * next.stride) {
      merged.back() = {merged.back().size * next.size, next.stride};
      continue;
    }
    merged.push_back(next);
  }
  return merged;
}

// memcpy, but past the caches for what they could not keep: the destination is not read first, and other data stays
// cached. glibc does so from 3/4 of the last-level cache on, and on a virtual machine that can be all of the host's.
// Sanitizers check memcpy, and do not see these stores.
void CopyBytes(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__SSE2__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  constexpr size_t kStreamed = size_t{32} << 20;
  constexpr size_t kStep = 4 * sizeof(__m128i);  // one cache line
  if (bytes >= kStreamed) {
    const size_t head = (kStep - reinterpret_cast<uintptr_t>(to) % kStep) % kStep;
    std::memcpy(to, from, head);
    to += head, from += head, bytes -= head;
    for (; bytes >= kStep; to += kStep, from += kStep, bytes -= kStep) {
      const auto* source = reinterpret_cast<const __m128i*>(from);
      auto* destination = reinterpret_cast<__m128i*>(to);
      const __m128i first = _mm_loadu_si128(source), second = _mm_loadu_si128(source + 1);
      const __m128i third = _mm_loadu_si128(source + 2), fourth = _mm_loadu_si128(source + 3);
      _mm_stream_si128(destination, first), _mm_stream_si128(destination + 1, second);
      _mm_stream_si128(destination + 2, third), _mm_stream_si128(destination + 3, fourth);
    }
    _mm_sfence();  // before whatever tells others that the array is there
  }
#endif
  std::memcpy(to, from, bytes);
}

template <size_t kItem>
std::byte* CopyItems(const std::byte* from, Dimension run, std::byte* to) {
  for (int64_t i = 0; i < run.size; ++i, from += run.stride, to += kItem) std::memcpy(to, from, kItem);
  return to;
}

std::byte* CopyRun(const std::byte* from, Dimension run, int64_t item, std::byte* to) {
  if (run.stride == item) {
    CopyBytes(to, from, static_cast<size_t>(run.size * item));
    return to + run.size * item;
  }
  switch (item) {  // with a constant size memcpy is one move, not a call
    case 1:
      return CopyItems<1>(from, run, to);
    case 2:
      return CopyItems<2>(from, run, to);
    case 4:
      return CopyItems<4>(from, run, to);
    case 8:
      return CopyItems<8>(from, run, to);
    case 16:
      return CopyItems<16>(from, run, to);
    default:
      break;
  }
  for (int64_t i = 0; i < run.size; ++i, from += run.stride, to += item)
    std::memcpy(to, from, static_cast<size_t>(item));
  return to;
}

}  // namespace

uint64_t View::elements() const {
  const auto count = layout::Elements(shape);
  return count.ok() ? *count : 0;
}

uint64_t View::nbytes() const {
  const auto bytes = layout::CompactBytes(elements(), type);
  return bytes.ok() ? *bytes : 0;
}

bool View::compact() const { return layout::IsCompact(shape, strides); }

void CopyCompact(const View& source, void* destination) {
  AB_CHECK(source.device.type == kDeviceCpu);
  const uint64_t bytes = source.nbytes();
  if (bytes == 0) return;
  if (source.compact()) {
    CopyBytes(static_cast<std::byte*>(destination), static_cast<const std::byte*>(source.data), bytes);
    return;
  }
  AB_CHECK(source.type.bits % 8 == 0);  // Describe rejects strided arrays of packed elements
  const int64_t item = int64_t{source.type.bits} * source.type.lanes / 8;
  std::vector<Dimension> outer = Merged(source, item);
  const Dimension run = outer.back();  // not empty, because an array of one element is compact
  outer.pop_back();

  const auto* from = static_cast<const std::byte*>(source.data);
  auto* to = static_cast<std::byte*>(destination);
  std::vector<int64_t> index(outer.size());
  while (true) {
    to = CopyRun(from, run, item, to);
    size_t digit = outer.size();
    while (digit > 0 && ++index[digit - 1] == outer[digit - 1].size) {
      --digit;
      from -= outer[digit].stride * (outer[digit].size - 1);
      index[digit] = 0;
    }
    if (digit == 0) return;
    from += outer[digit - 1].stride;
  }
}

bool LiesIn(const View& inner, const View& outer) {
  if (inner.data == nullptr || outer.data == nullptr || !outer.compact() || inner.type.bits % 8 != 0) return false;
  const auto extent = layout::ExtentOf(inner.shape, inner.strides);
  if (!extent.ok()) return false;
  const int64_t item = int64_t{inner.type.bits} * inner.type.lanes / 8;
  const int64_t start = reinterpret_cast<intptr_t>(inner.data) - reinterpret_cast<intptr_t>(outer.data);
  const int64_t end = start + (extent->highest + 1) * item;
  return start + extent->lowest * item >= 0 && end <= static_cast<int64_t>(outer.nbytes());
}

Result<View> CopyToHeap(const View& source) {
  View copy = source;
  copy.device = {};
  copy.stream.reset();
  copy.fence.reset();
  copy.strides = CompactStrides(source.shape);
  copy.read_only = false;
  copy.legacy_may_alias_read_only = false;
  copy.constant = false;
  copy.guarded = false;
  copy.copy_on_write = nullptr;
  copy.owner.reset();
  copy.data = nullptr;
  const uint64_t bytes = source.nbytes();
  if (bytes == 0) return copy;
  // aligned_alloc requires a size that is a multiple of the alignment. bytes < 2^62, so the sum does not overflow.
  const uint64_t rounded = (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
  copy.data = std::aligned_alloc(kArrayAlignment, rounded);
  if (copy.data == nullptr) return ResourceExhausted("no memory for a private copy of ", bytes, " bytes");
  copy.owner = std::shared_ptr<void>(copy.data, std::free);
  if (source.device.type != kDeviceCpu) {
    AB_RETURN_IF_ERROR(CopyOverDevice(source, copy.data, copy.device));
  } else {
    CopyCompact(source, copy.data);
  }
  return copy;
}

}  // namespace arraybridge
