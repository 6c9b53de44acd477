// An access list as an operator writes it: "uid:1000", "gid:100", "@group", "user", "anyone", "token:FILE",
// "subject:NAME" of a client over TCP, each with ":ro" behind it if it may only read.
#pragma once

#include <string>
#include <string_view>

#include "daemon/access.h"
#include "proto/boundary/result.h"

namespace arraybridge {

inline constexpr std::string_view kSameUid = "same_uid";

// Entries with commas between them, at least one. "same_uid" stands alone and is the empty list: each user has a
// namespace of this name. Looks names up and reads tokens. INVALID_ARGUMENT: a text that is no entry, a name that does
// not exist, a token's file that is missing, that other users may read or write, or that holds no token.
Result<AccessList> ReadAccessList(std::string_view text);

// As ReadAccessList, of users and groups. The group arraybridge-admin, which the package makes, may be missing if
// another entry is there.
Result<AccessList> ReadAdmins(std::string_view text);

// The list as numbers; tokens are not shown.
std::string Written(const AccessList& list);

// Root, the daemon's own user, and the group arraybridge-admin if it exists.
AccessList DefaultAdmins();

}  // namespace arraybridge
