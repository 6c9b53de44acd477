// SPDX-License-Identifier: Apache-2.0
#include "client/services/call.h"

#include <algorithm>

namespace arraybridge::services {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

std::string NameOf(const Sender& server) { return Concat("'", server.client, "' (process ", server.process_id, ")"); }

}  // namespace

ServiceLetter Call::LetterOf(const char* kind, const std::string& caller) const {
  // steady_clock is CLOCK_MONOTONIC, which all processes of a machine share.
  const nanoseconds at = due ? nanoseconds(due->time_since_epoch()) : nanoseconds(0);
  return {.kind = kind,
          .peer = caller,
          .number = number,
          .due_ns = static_cast<uint64_t>(at.count()),
          .room = streams ? kRoom : 0};
}

milliseconds Call::Left(milliseconds most) const { return TimeUntil(due, most); }

Status Call::Gone(std::string_view service) const {
  const char* const remedy =
      retry ? "so did 2 others before: look in the servers' logs whether this request ends them"
            : "it may have executed it, or a part: call again if that does no harm, or state `retry` in the servers";
  return Unavailable("the server of service '", service, "', ", NameOf(server_process),
                     ", ended with the request in its hands; ", remedy)
      .Because("SERVER_GONE")
      .With("process_id", Concat(server_process.process_id))
      .With("client", server_process.client);
}

Status Call::Failed(std::string_view service, std::string_view why) {
  return {Code::kUnknown, Concat("the server of service '", service, "' has no result: ", why), "REQUEST_FAILED"};
}

Status Call::TimedOut(std::string_view service) const {
  const int64_t waited = timeout.value_or(milliseconds(0)).count();
  if (!server.empty()) {
    return DeadlineExceeded("service '", service, "' has not answered within ", waited, " ms: ", NameOf(server_process),
                            " has the request, and sees it as cancelled; pass a larger timeout")
        .Because("NOT_ANSWERED");
  }
  return DeadlineExceeded("no server of service '", service, "' has taken the request within ", waited,
                          " ms, and none will: start one in the same namespace, start more of them, or pass a larger "
                          "timeout")
      .Because("NOT_TAKEN");
}

}  // namespace arraybridge::services
