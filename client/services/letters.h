// SPDX-License-Identifier: Apache-2.0
// The kinds of letters, and the meaning of each.
#pragma once

#include <chrono>

namespace arraybridge::services {

inline constexpr char kTicket[] = "ticket";  // caller to any server: a request waits
inline constexpr char kAsk[] = "ask";        // server to caller: may I execute it?
inline constexpr char kGo[] = "go";          // caller to server: execute it; here it is
inline constexpr char kNo[] = "no";          // caller to server: it is over, or another server has it
inline constexpr char kMore[] = "more";      // caller to server: `room` further items of the answer may come
inline constexpr char kCancel[] = "cancel";  // caller to server: the caller does not wait for the answer
inline constexpr char kBack[] = "back";      // server to caller: I have not executed it, and will not
inline constexpr char kAnswer[] = "answer";  // server to caller: the result
inline constexpr char kItem[] = "item";      // server to caller: a part of the result
inline constexpr char kEnd[] = "end";        // server to caller: there are no further items
inline constexpr char kFailed[] = "failed";  // server to caller: there is no result
inline constexpr char kBye[] = "bye";        // server to caller: I end; `held`

// How long a server waits for a caller that lives and does not answer: it was stopped, or has no memory. A server that
// finds no room for a question in this time drops the ticket; the caller sends it again after it has read a letter that
// is so old.
inline constexpr std::chrono::milliseconds kPatience{5000};

}  // namespace arraybridge::services
