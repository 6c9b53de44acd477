// The addresses of the doors, as an operator writes them, and the certificates that TCP needs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Fills grpc_path and tcp_listen from `text`: "off", or URIs with commas between them; empty: the default path.
// INVALID_ARGUMENT: a URI that is neither unix:///path nor tcp://HOST:PORT, or that stands there twice; a second Unix
// socket; TCP of an embedded broker. REQUIRES: the directory is known.
Status ReadListen(std::string_view text, Config& config);

// The text that ReadListen reads back.
std::string WrittenListen(const Config& config);

// A path, or unix:///path, as the path; "off" as an empty path; an empty text as nothing. INVALID_ARGUMENT: other
// texts.
Result<std::optional<std::string>> ReadAdmin(std::string_view text);

// HOST:PORT, an address in numbers; "off" as an empty text. INVALID_ARGUMENT: other texts.
Result<std::string> ReadHttp(std::string_view text);

// INVALID_ARGUMENT: processes of other hosts could connect. REQUIRES: ReadHttp made it.
Status CheckHttpIsLocal(const std::string& listen);

// TCP needs certificates, on loopback too. INVALID_ARGUMENT: as ReadTls; the status' metadata name the setting to
// change under "setting". `checking`: a certificate that is out of date is an error; a daemon that starts serves its
// own host all the same.
Status CheckTls(const Config& config, bool checking);

}  // namespace arraybridge
