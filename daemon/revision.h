// What this was built of: the commit, with "-dirty" where files had changed since, or "unknown" outside of a checkout.
// The definition is made anew by every build (deploy/cmake/Revision.cmake).
#pragma once

namespace arraybridge {

extern const char* const kRevision;

}  // namespace arraybridge
