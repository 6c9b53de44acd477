// SPDX-License-Identifier: Apache-2.0
// What the files that have no headers of the runtime need from those that do.
#pragma once

namespace arraybridge::simulated_runtime {

// The error of a call that is not supported, which this thread's next cudaGetLastError returns, too.
int Refused();
// Whether the stream is being captured, as cudaStreamIsCapturing says it.
int IsCapturing(void* stream, int* status);

}  // namespace arraybridge::simulated_runtime
