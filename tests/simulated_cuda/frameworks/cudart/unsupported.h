// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace arraybridge::simulated_runtime {

// The error of a call that is not supported, which this thread's next cudaGetLastError returns, too.
int Refused();

}  // namespace arraybridge::simulated_runtime
