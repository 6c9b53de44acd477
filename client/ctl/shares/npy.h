// SPDX-License-Identifier: Apache-2.0
// The head of a .npy file: the bytes before the data of its one array, in the format of
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html. The reader is strict, because a file can come
// from an untrusted peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <arraybridge/array_spec.h>

#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// So many bytes of a file suffice to tell the length of its head.
inline constexpr size_t kNpyStartBytes = 12;
// The longest head that is read: NumPy's own default limit, plus the fixed start.
inline constexpr size_t kNpyHeadBytesMax = 10'000 + kNpyStartBytes;

// Returns the length of the head, for versions 1.0, 2.0 and 3.0. `start`: the first kNpyStartBytes of the file, or
// fewer if the file is shorter. INVALID_ARGUMENT: not a .npy file, or the head is longer than kNpyHeadBytesMax.
Result<size_t> NpyHeadBytes(std::string_view start);

// Returns the description of the array: C-contiguous, little-endian numbers or booleans. `head`: the first NpyHeadBytes
// of the file. INVALID_ARGUMENT: the head is malformed; the message names the place. UNIMPLEMENTED: the head is valid,
// but this program cannot share the array: another byte or memory order, structures, texts, times, objects.
Result<ArraySpec> ReadNpyHead(std::string_view head);

// Returns a head of version 1.0 for the array. UNIMPLEMENTED: the format has no name for the type.
Result<std::string> NpyHead(const ArraySpec& array);

}  // namespace arraybridge::ctl
