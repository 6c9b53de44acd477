// What can be asked about a configuration without a broker: what it may say, and whether one says it rightly.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// A configuration file with every setting, its default and what it is for.
std::string_view DefaultConfig();

// Has arraybridged read it, which alone knows what is right: of this file, or of where it looks itself if that is
// empty. It is looked for beside this program, then in $PATH. Says on standard error where something is wrong:
// FAILED_PRECONDITION. NOT_FOUND: there is no arraybridged here.
Status CheckConfig(const std::string& file, std::ostream& out);

}  // namespace arraybridge::ctl
