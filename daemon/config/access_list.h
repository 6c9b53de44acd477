// How an operator writes down who may use something: "uid:1000", "gid:100", "@group", "user", "anyone", "token:FILE",
// "subject:NAME" of who comes over TCP, each with ":ro" behind it if it may only read.
#pragma once

#include <string>
#include <string_view>

#include "daemon/access.h"
#include "proto/boundary/result.h"

namespace arraybridge {

inline constexpr std::string_view kSameUid = "same_uid";

// Separated by commas, at least one. "same_uid" stands alone, for a list without entries: everybody has his own. Names
// are looked up and tokens read now. INVALID_ARGUMENT: what is no entry, a name that nobody has, a token's file that is
// not there, that others may read or write, or that holds no token.
Result<AccessList> ReadAccessList(std::string_view text);

// The same list as numbers. Of tokens it says that they are some.
std::string Written(const AccessList& list);

// As ReadAccessList, but that the group arraybridge-admin, which the package makes, need not be there if others are
// named: so it is unless somebody is named, too.
Result<AccessList> ReadAdmins(std::string_view text);

// Who administers unless somebody is named: root, the daemon's own user, the group arraybridge-admin if there is one.
AccessList DefaultAdmins();

}  // namespace arraybridge
