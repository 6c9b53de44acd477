// A token is what opens a namespace to who states it: 128 random bits, written as text. What opens what is a broker's
// configuration: entries token:FILE in the access lists of its namespaces. The broker reads those files when it starts
// and when it reloads; what stands in them later is nothing to it.
#pragma once

#include <iosfwd>
#include <string>

#include "client/ctl/admin/admin.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// Prints a fresh one or, if a file is named, makes that file with it, for its owner alone. ALREADY_EXISTS: there is
// such a file. PERMISSION_DENIED: it cannot be made.
Status CreateToken(const std::string& file, std::ostream& out);

// Puts a fresh one, which nobody is told, in the place of what the file holds, and has the broker reload: from then on
// the old one opens nothing, and sessions that stated it and use what it opened have ended. Owner and mode of the file
// stay, and so do symbolic links to it. NOT_FOUND: no namespace of this broker names the file, and nothing has changed.
// FAILED_PRECONDITION: it is no file, holds no token, or has another name (a hard link), which would keep the old one.
Status RevokeToken(AdminConnection& connection, const Options& options, const AdminOptions& asked, std::ostream& out);

// Which files open which namespaces, for reading or writing, and where that is said.
Status LsTokens(AdminConnection& connection, const Options& options, const AdminOptions& asked, std::ostream& out);

}  // namespace arraybridge::ctl
