// SPDX-License-Identifier: Apache-2.0
// A shared word is eight bytes of a page that two processes map. It is read and written atomically, even through a
// read-only mapping. A value that the other side writes is only compared; it is never used as an index or a length
// without a check.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace arraybridge {

static_assert(std::atomic_ref<uint64_t>::is_always_lock_free && std::atomic_ref<uint32_t>::is_always_lock_free,
              "a lock would exist in only one of the processes");

template <class Word>
inline Word Load(const Word& word, std::memory_order order) {
  // C++20 has no atomic_ref of const. A load never writes.
  return std::atomic_ref<Word>(const_cast<Word&>(word)).load(order);
}

// Loads two neighbouring words at once, each atomically, like Load with memory_order_relaxed: the supported processors
// (x86-64, AArch64) never tear a half of an aligned vector. That halves the loads of a loop over many words. It is one
// instruction, because C++ has no atomic vector, and a vector that another process writes would be a race.
using WordPair = uint64_t __attribute__((vector_size(16), may_alias));
inline WordPair LoadPair(const uint64_t* words) {
#if defined(__SANITIZE_THREAD__)  // it does not see what an instruction of our own reads
  return WordPair{Load(words[0], std::memory_order_relaxed), Load(words[1], std::memory_order_relaxed)};
#else
  WordPair pair;
#if defined(__x86_64__)
  asm volatile("movdqa %1, %0" : "=x"(pair) : "m"(*reinterpret_cast<const WordPair*>(words)));
#else
  asm volatile("ldr %q0, %1" : "=w"(pair) : "m"(*reinterpret_cast<const WordPair*>(words)));
#endif
  return pair;
#endif
}

template <class Word>
inline void Store(Word& word, std::type_identity_t<Word> value, std::memory_order order) {
  std::atomic_ref<Word>(word).store(value, order);
}

inline void ThreadFence(std::memory_order order) { std::atomic_thread_fence(order); }

}  // namespace arraybridge
