// SPDX-License-Identifier: Apache-2.0
// The settings of [tiers].
#pragma once

#include <vector>

#include "daemon/config/setting.h"

namespace arraybridge::daemon {

// In the order in which the file lists them.
std::vector<Setting> TierSettings();

}  // namespace arraybridge::daemon
