// SPDX-License-Identifier: Apache-2.0
// The text of an errno. If a limit of this process is its likely cause, the text names it and says how to raise it.
#pragma once

#include <string>
#include <string_view>

namespace arraybridge {

// `process`: what the reader of the message calls this process: "the broker".
std::string ExplainedError(int error, std::string_view process);

}  // namespace arraybridge
