// SPDX-License-Identifier: Apache-2.0
// The status page is the daemon's HTTP start page: the same numbers as the metrics, as HTML without scripts, in bars
// and tables.
#pragma once

#include <string>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/verbs/verbs.h"

namespace arraybridge {

// Thread-safe.
std::string StatusPage(const Config& config, const Broker& broker, const Verbs& verbs);

}  // namespace arraybridge
