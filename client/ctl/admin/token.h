// SPDX-License-Identifier: Apache-2.0
// A token is a secret of 128 random bits, written as text. A session that states it may use the namespaces that it
// opens. It opens a namespace if the access list in the broker's configuration has an entry token:FILE for the token's
// file. The broker reads the files when it starts and when it reloads, and at no other time.
#pragma once

#include <iosfwd>
#include <string>

#include "client/ctl/admin/admin.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// Prints a new token or, if a file is named, creates that file with it, readable by its owner only. ALREADY_EXISTS: the
// file exists. PERMISSION_DENIED: the file cannot be created.
Status CreateToken(const std::string& file, std::ostream& out);

// Replaces the token in a file by a new one, which is not shown, and reloads the broker. Then the old token opens
// nothing, and sessions that stated it and use what it opened have ended. Owner and mode of the file are kept, and
// symbolic links to it stay valid. NOT_FOUND: no namespace of this broker names the file; nothing has changed.
// FAILED_PRECONDITION: the path is not a regular file, holds no token, or has another hard link, which would keep the
// old token.
Status RevokeToken(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out);

// Prints which files open which namespaces, for reading or writing, and where the configuration says so.
Status LsTokens(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out);

}  // namespace arraybridge::ctl
