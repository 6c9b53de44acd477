// SPDX-License-Identifier: Apache-2.0
// The status page's script reads these answers: messages of the protocol as JSON (protobuf's mapping, with the names
// of the fields). They change nothing.
#pragma once

#include <optional>
#include <string_view>

#include "daemon/config/config.h"
#include "daemon/service/http/http.h"
#include "daemon/service/verbs/list_verbs.h"

namespace arraybridge::daemon {

// /info.json: GetServerInfoResponse. /stats.json: GetStatsResponse. /list.json: ListResponse of everybody's objects,
// with the fields of ListRequest as parameters: kind=SHARES&name_prefix=a; shares without metadata and structure.
// Without http.namespaces, whatever has names is refused with 403. nullopt: `path` is none of these. Thread-safe.
std::optional<Http::Page> StatusJson(std::string_view path, const Http::Query& query, const Config& config,
                                     const ListVerbs& lists);

}  // namespace arraybridge::daemon
