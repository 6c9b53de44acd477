// SPDX-License-Identifier: Apache-2.0
// The memory of the reordering machine. A test that finds this file before the product's file of the same name compiles
// the product's protocols so that each access to a shared word goes to the machine.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "tests/unit/boundary/reordering/recorder.h"

namespace arraybridge {

template <class Word>
Word Load(const Word& word, std::memory_order order) {
  return machine::Recorder::Load(word, order);
}
template <class Word>
void Store(Word& word, std::type_identity_t<Word> value, std::memory_order order) {
  machine::Recorder::Store(word, value, order);
}
inline void ThreadFence(std::memory_order order) { machine::Recorder::Fence(order); }

using WordPair = uint64_t __attribute__((vector_size(16), may_alias));
inline WordPair LoadPair(const uint64_t* words) {
  return WordPair{Load(words[0], std::memory_order_relaxed), Load(words[1], std::memory_order_relaxed)};
}

}  // namespace arraybridge
