// A setting file is a file that a setting names: a token, a certificate, the configuration itself. Its content is used
// only if its mode keeps other users from what they must not do to it.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Opened for reading, without waiting for the writer of a pipe. Invalid: errno says why.
UniqueFd OpenSettingFile(const std::string& path);

// All of it. `forbidden`: bits of its mode; `because`: why a file with one of them is refused. INVALID_ARGUMENT names
// the file: it is no regular file, has a forbidden bit, is longer than 1 MiB, or cannot be read.
Result<std::string> ReadSettingFile(const UniqueFd& file, const std::string& path, mode_t forbidden,
                                    std::string_view because);

}  // namespace arraybridge
