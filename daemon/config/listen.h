// SPDX-License-Identifier: Apache-2.0
// The addresses of the doors as an operator writes them, and the certificates that TCP needs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Fills grpc_path and tcp_listen from `text`: "off", or comma-separated URIs; an empty text means the default path.
// INVALID_ARGUMENT: a URI is neither unix:///path nor tcp://HOST:PORT or is listed twice; there is a second Unix
// socket; an embedded broker would listen on TCP. REQUIRES: config.directory is set.
Status ReadListen(std::string_view text, Config& config);

// The inverse of ReadListen.
std::string WrittenListen(const Config& config);

// Reads a path or unix:///path as the path, "off" as an empty path, and an empty text as nullopt. INVALID_ARGUMENT: any
// other text.
Result<std::optional<std::string>> ReadAdmin(std::string_view text);

// Reads HOST:PORT with a numeric address, and "off" as an empty text. INVALID_ARGUMENT: any other text.
Result<std::string> ReadHttp(std::string_view text);

// INVALID_ARGUMENT: other hosts could connect. REQUIRES: ReadHttp returned `listen`.
Status CheckHttpIsLocal(const std::string& listen);

// TCP needs certificates, on loopback too. INVALID_ARGUMENT: as ReadTls; the metadata entry "setting" names the setting
// to change. `checking`: a certificate that is out of date is an error; otherwise the daemon starts, because it still
// serves its own host.
Status CheckTls(const Config& config, bool checking);

}  // namespace arraybridge
