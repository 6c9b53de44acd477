// For who looks at a word until somebody else changes it.
#pragma once

namespace arraybridge {

// A few tens of cycles, in which the other thread of this core has it to itself.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

}  // namespace arraybridge
