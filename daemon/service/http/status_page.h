// SPDX-License-Identifier: Apache-2.0
// The status page is the daemon's HTTP start page: the same numbers as the metrics, as HTML, in bars and tables. Its
// script (page/status.js) draws the live view above them: who holds the memory, and where a pipeline stands still.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/http/http.h"
#include "daemon/service/verbs/verbs.h"

namespace arraybridge::daemon {

// Thread-safe.
std::string StatusPage(const Config& config, const Broker& broker, const Verbs& verbs);
// The script and the style sheet of the page, which the program contains. nullopt: `path` is neither.
std::optional<Http::Page> StatusFile(std::string_view path);

}  // namespace arraybridge::daemon
