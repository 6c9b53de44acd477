// SPDX-License-Identifier: Apache-2.0
// A hint to the processor for loops that poll a word until another thread changes it.
#pragma once

namespace arraybridge {

// Takes a few tens of cycles, during which the other hardware thread of this core runs alone.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("isb");  // yield does nothing on most of these processors, so loops would end too soon
#endif
}

}  // namespace arraybridge
