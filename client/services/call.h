// SPDX-License-Identifier: Apache-2.0
// A Call is one request on its caller's side, from its ticket to its one outcome.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include <arraybridge/services/service.h>

#include "client/lifeline/lifeline.h"
#include "client/services/letters.h"
#include "client/services/mailbox.h"

namespace arraybridge::services {

inline constexpr uint64_t kRoom = 8;  // items that are on their way, or wait for the thread that takes them
inline constexpr int kTriesMax = 3;   // so many servers may end with one request in their hands

// Its caller guards it by a lock, except what is constant.
struct Call {
  const uint64_t number;  // of the request in its caller
  const std::vector<View> views;
  const std::string structure;
  const std::optional<std::chrono::milliseconds> timeout;
  const std::optional<Deadline> due;
  const bool waits;            // a thread waits for the outcome; otherwise the promise gets it, unless it streams
  const bool streams = false;  // the answer has several items

  std::string server{};  // the server that has the request; empty: none
  Sender server_process{};
  bool retry = false;                // this server states that the request may be executed again
  std::optional<Mailbox> give_to{};  // a server that asked for the request, which is still to be sent
  bool giving = false;               // a thread sends the request now
  int tries = 0;                     // servers that had it
  bool withdrawn = false;            // no caller waits for the outcome
  bool ticket_due = false;           // its ticket was not sent yet, or may be lost
  std::deque<Acquired> items{};      // not taken yet
  uint64_t taken = 0;
  std::optional<Result<Acquired>> outcome{};  // of a call that streams, only its status counts
  std::promise<Result<Acquired>> promise{};

  ServiceLetter LetterOf(const char* kind, const std::string& caller) const;
  // The time left of `most`, or of the call if that is less.
  std::chrono::milliseconds Left(std::chrono::milliseconds most) const;
  bool is_over() const { return due && std::chrono::steady_clock::now() >= *due; }

  // The server that has it has ended: another one may execute it again.
  bool may_retry() const { return retry && tries < kTriesMax; }

  // The errors if the server has ended, if it has no result, or if the time is over.
  Status Gone(std::string_view service) const;
  static Status Failed(std::string_view service, std::string_view why);
  Status TimedOut(std::string_view service) const;
};

}  // namespace arraybridge::services
