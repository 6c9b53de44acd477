// The head of a .npy file: what stands before the bytes of one array. Read strictly, by
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html: a file from anywhere may be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <arraybridge/array_spec.h>

#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// Enough of a file to say how long its head is.
inline constexpr size_t kNpyStartBytes = 12;
// The longest head that is read: what NumPy itself takes unless told otherwise, and the words before it.
inline constexpr size_t kNpyHeadBytesMax = 10'000 + kNpyStartBytes;

// Of the versions 1.0, 2.0 and 3.0. `start`: the file's first kNpyStartBytes, fewer if it has no more.
// INVALID_ARGUMENT: it is no such file, or its head is longer than kNpyHeadBytesMax.
Result<size_t> NpyHeadBytes(std::string_view start);

// The one array of a file: C-contiguous, little-endian numbers or truth values. `head`: NpyHeadBytes of it.
// INVALID_ARGUMENT names what is wrong; UNIMPLEMENTED names what the file may rightly be, and a share made here is not:
// another byte or memory order, structures, texts, times, objects.
Result<ArraySpec> ReadNpyHead(std::string_view head);

// The head, of version 1.0, of such an array. UNIMPLEMENTED: such files have no name for the type.
Result<std::string> NpyHead(const ArraySpec& array);

}  // namespace arraybridge::ctl
