// SPDX-License-Identifier: Apache-2.0
// The commit of the build, with "-dirty" if files had changed, or "unknown" outside a checkout. Every build writes the
// definition anew (deploy/cmake/Revision.cmake).
#pragma once

namespace arraybridge::daemon {

extern const char* const kRevision;

}  // namespace arraybridge::daemon
