// SPDX-License-Identifier: Apache-2.0
// An access list as an operator writes it: "uid:1000", "gid:100", "@group", "user", "anyone", "token:FILE", each with
// ":ro" behind it if it may only read.
#pragma once

#include <string>
#include <string_view>

#include "daemon/access.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

inline constexpr std::string_view kSameUid = "same_uid";

// Reads entries that are separated by commas; there is at least one. "same_uid" must be the only entry and gives the
// empty list: each user has a namespace of this name. Looks up names and reads token files. INVALID_ARGUMENT: a text is
// not an entry, a name does not exist, or a token's file is missing, is accessible to other users or holds no token.
Result<AccessList> ReadAccessList(std::string_view text);

// As ReadAccessList, but only users and groups are allowed. The group arraybridge-admin, which the package creates, may
// be missing if there is another entry.
Result<AccessList> ReadAdmins(std::string_view text);

// The list with numeric ids; tokens are not shown.
std::string Written(const AccessList& list);

// Root, the daemon's own user, and the group arraybridge-admin if it exists.
AccessList DefaultAdmins();

}  // namespace arraybridge::daemon
