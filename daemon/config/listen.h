// Where the doors are, as an operator writes it down, and whether what they need for that is there.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// `said`: "off", or URIs with commas between them; empty: the default place. INVALID_ARGUMENT: what is neither
// unix:///path nor tcp://HOST:PORT, or stands there twice; a second Unix socket; TCP of an embedded broker. REQUIRES:
// the directory.
Status ReadListen(std::string_view said, Config& config);

// The same, once it is read.
std::string WrittenListen(const Config& config);

// A path, or unix:///path, as the path, "off" as an empty one, nothing if nothing was said. INVALID_ARGUMENT: anything
// else.
Result<std::optional<std::string>> ReadAdmin(std::string_view said);

// HOST:PORT, an address in numbers; "off" as an empty text. INVALID_ARGUMENT: anything else.
Result<std::string> ReadHttp(std::string_view said);

// INVALID_ARGUMENT: others than this host's processes could connect. REQUIRES: what ReadHttp gave.
Status CheckHttpIsLocal(const std::string& listen);

// There is no TCP without certificates, on loopback either. INVALID_ARGUMENT: as ReadTls; the status' metadata say
// under "setting" what is to be changed. `checking`: nobody starts, so what is only out of date is an error too; a
// daemon starts, and serves its own host all the same.
Status CheckTls(const Config& config, bool checking);

}  // namespace arraybridge
