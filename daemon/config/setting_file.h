// The content of a file that a setting names: it is believed only if nobody wrote or read it who must not.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Opened for reading, without waiting for whoever writes a pipe. Invalid: errno says why.
UniqueFd OpenSettingFile(const std::string& path);

// All of it. `forbidden`: bits of its mode; `because`: what it means that one of them is set. INVALID_ARGUMENT names
// the file: it is no regular file, has a forbidden bit, is longer than 1 MiB, or cannot be read.
Result<std::string> ReadSettingFile(const UniqueFd& file, const std::string& path, mode_t forbidden,
                                    std::string_view because);

}  // namespace arraybridge
