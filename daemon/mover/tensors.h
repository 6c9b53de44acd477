// SPDX-License-Identifier: Apache-2.0
// The header of a file in the format of safetensors, so that any program can read the arrays of a share that is in a
// file. The data of the file are the share's bytes as they lie in memory, gaps between arrays included: each gap is a
// tensor of bytes, because the format has no gaps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/mover/digest.h"
#include "daemon/mover/label.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Where the data of a file with this label begin: a multiple of a page.
uint64_t DataStart(const label::Label& label);
// The header, up to the data. It has the same size for every digest.
std::string HeaderOf(const label::Label& label);

// The label in a header. Its texts are views of `storage`. FAILED_PRECONDITION: the header is not one of HeaderOf.
Result<label::Label> LabelIn(std::string_view header, std::string* storage);
// The number of bytes at the start of a file that DataStart reads it from: `start` is its first eight bytes. 0: the
// file is none of ours.
uint64_t HeaderBytes(std::string_view start);

}  // namespace arraybridge::daemon
