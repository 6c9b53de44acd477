// SPDX-License-Identifier: Apache-2.0
// Random bytes of the kernel, for what clients must not guess.
#pragma once

#include <sys/random.h>

#include "proto/boundary/result.h"

namespace arraybridge::daemon {

template <class T>
T RandomBytes() {
  T value{};
  AB_CHECK(::getrandom(&value, sizeof(value), 0) == static_cast<ssize_t>(sizeof(value)));
  return value;
}

}  // namespace arraybridge::daemon
