// SPDX-License-Identifier: Apache-2.0
// A shared word is eight bytes of a page that two processes map. It is read and written atomically, even through a
// read-only mapping. A value that the other side writes is only compared; it is never used as an index or a length
// without a check.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace arraybridge {

// A lock would exist in only one of the processes.
static_assert(std::atomic_ref<uint64_t>::is_always_lock_free && std::atomic_ref<uint32_t>::is_always_lock_free);

// Of a uint32_t or uint64_t.
auto Load(const auto& word, std::memory_order order) {
  // C++20 has no atomic_ref of const. A load never writes.
  return std::atomic_ref(const_cast<std::remove_cvref_t<decltype(word)>&>(word)).load(order);
}
void Store(auto& word, std::remove_cvref_t<decltype(word)> value, std::memory_order order) {
  std::atomic_ref(word).store(value, order);
}

// Loads two neighbouring words at once, each atomically, like Load with memory_order_relaxed: the supported processors
// never tear a half of an aligned vector. C++ has no such load, and a plain one would race.
using WordPair = uint64_t __attribute__((vector_size(16), may_alias));
inline WordPair LoadPair(const uint64_t* words) {
  WordPair pair = {};
#if defined(__SANITIZE_THREAD__)  // it does not know what an instruction loads
  pair = WordPair{Load(words[0], std::memory_order_relaxed), Load(words[1], std::memory_order_relaxed)};
#elif defined(__x86_64__)
  asm volatile("movdqa %1, %0" : "=x"(pair) : "m"(*reinterpret_cast<const WordPair*>(words)));
#else
  asm volatile("ldr %q0, %1" : "=w"(pair) : "m"(*reinterpret_cast<const WordPair*>(words)));
#endif
  return pair;
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"  // ThreadSanitizer runs the fence and does not reason with it: nor need it
#endif
inline void ThreadFence(std::memory_order order) { std::atomic_thread_fence(order); }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

}  // namespace arraybridge
