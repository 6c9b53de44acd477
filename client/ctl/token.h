// A token is what opens a namespace to who states it: 128 random bits, written as text.
#pragma once

#include <iosfwd>
#include <string>

#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// Prints a fresh one or, if a file is named, makes that file with it, for its owner alone. ALREADY_EXISTS: there is
// such a file. PERMISSION_DENIED: it cannot be made.
Status CreateToken(const std::string& file, std::ostream& out);

}  // namespace arraybridge::ctl
