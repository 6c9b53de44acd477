// SPDX-License-Identifier: Apache-2.0
// A failpoint is a named place where a test may kill the process, make a step fail, or skip a safeguard to verify that
// a test notices (tests/integration/cuda_safeguards_test.cc). Failpoints work only in builds with
// ARRAYBRIDGE_FAILPOINTS (the dev and sanitizer presets). failpoint.cc is the only file that those builds compile
// differently, so tests run the object files that users get.
#pragma once

#include <string_view>

namespace arraybridge {

extern const bool kFailpointsWork;

// Whether the environment arms this failpoint. ARRAYBRIDGE_FAILPOINT="name:abort", "name:kill" or "name:error" arms
// one; "name:kill_once=N:FILE" kills the process the N-th time that it passes, and creates the file; a process that
// finds the file is not killed.
bool IsArmed(std::string_view name);

// True: the caller must fail as it would on a real failure, or continue without the safeguard.
inline bool Failpoint(std::string_view name) { return kFailpointsWork && IsArmed(name); }

}  // namespace arraybridge
