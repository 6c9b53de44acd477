// The rows of [limits]; a limit that is Reloadable changes on a reload.
#pragma once

#include <vector>

#include "daemon/config/setting.h"

namespace arraybridge {

// In the order of the file.
std::vector<Setting> LimitSettings();

}  // namespace arraybridge
