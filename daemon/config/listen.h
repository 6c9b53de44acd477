// SPDX-License-Identifier: Apache-2.0
// The addresses of the doors as an operator writes them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Reads a path or unix:///path as the path, "off" as an empty path, and an empty text as nullopt. INVALID_ARGUMENT: any
// other text.
Result<std::optional<std::string>> ReadSocket(std::string_view text);

// The inverse of ReadSocket.
std::string WrittenSocket(const std::string& path);

// Reads HOST:PORT with a numeric address, and "off" as an empty text. INVALID_ARGUMENT: any other text.
Result<std::string> ReadHttp(std::string_view text);

// INVALID_ARGUMENT: other hosts could connect. REQUIRES: ReadHttp returned `listen`.
Status CheckHttpIsLocal(const std::string& listen);

}  // namespace arraybridge::daemon
