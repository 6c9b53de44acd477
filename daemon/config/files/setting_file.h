// SPDX-License-Identifier: Apache-2.0
// A setting file is a token's file, or the configuration itself. Its content is used only if its mode keeps other users
// from reading or writing it where they must not.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

// Opens the file for reading; does not wait for the writer of a pipe. If the result is invalid, errno has the error.
UniqueFd OpenSettingFile(const std::string& path);

// Reads the whole file. `forbidden`: mode bits that the file must not have; `because`: the error for a file that has
// one. INVALID_ARGUMENT names the file: it is not a regular file, has a forbidden bit, is longer than 1 MiB, or cannot
// be read.
Result<std::string> ReadSettingFile(const UniqueFd& file, const std::string& path, mode_t forbidden,
                                    std::string_view because);

}  // namespace arraybridge::daemon
