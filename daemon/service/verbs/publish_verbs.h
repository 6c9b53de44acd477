// SPDX-License-Identifier: Apache-2.0
// PublishVerbs: Publish, waited and unwaited. An unwaited publish is an entry in its session's queue, and its success
// is not answered. A request that looks up, withdraws or lists names finds the shares of these entries, because it
// first serves the queues of the namespace.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

#include "daemon/broker/objects/open_queue.h"
#include "daemon/service/reclaim/worker.h"
#include "daemon/service/verbs/caller.h"
#include "daemon/service/verbs/verb_parts.h"
#include "proto/boundary/result.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {

// Thread-safe. It has one thread for seals that may sleep.
class PublishVerbs : VerbParts {
 public:
  // All arguments outlive it.
  explicit PublishVerbs(const VerbParts& parts) : VerbParts(parts), to_seal_(config_.limits), sealer_("ab-seal") {}

  Result<Answer> Publish(const Caller& caller, const wire::PublishRequest& request);
  // For a request with `sealed`: the kernel may sleep during the seal. The request has no place in the line and cannot
  // be cancelled. `bytes`: those of the request.
  Served PublishSealed(const Caller& caller, std::string_view bytes, std::string_view ns, const Later& later);

  std::optional<OpenQueue> FindQueue(SessionId session) const { return broker_.QueueOf(session); }
  // Serves at most `most` unwaited publishes and returns their number. Cuts a session that wrote an invalid entry.
  // `others`: whether other requests may run between them.
  // As Broker::TakeBackUnanswered, for the request of the caller.
  std::optional<Answer> AnswerAgain(const Caller& caller);
  uint64_t ServePublishes(const OpenQueue& of, uint64_t most, SessionQueue::Others others);
  // Serves the unwaited publishes in the queues of this namespace, or of all namespaces of the user. A name exists from
  // the moment at which its request stands in a queue. True: a name that was missing before this call may exist now.
  // False: no session has a queue.
  bool ServeQueued(SessionId session, std::optional<std::string_view> ns);
  // The share with this name is complete: serves the requests that wait for it.
  void AnnounceName(SessionId maker, std::string_view ns, std::string_view name);

  void DropSession(SessionId session) { to_seal_.DropSession(session); }
  // Called when the daemon drains.
  void ExpireAll() { to_seal_.ExpireAll(); }
  void WaitIdle(Clock::time_point deadline) { sealer_.WaitIdle(deadline); }
  // Ends its threads. Not thread-safe.
  void Stop();

 private:
  // The common part of all publishes.
  Result<PublishedShare> Record(SessionId session, const wire::PublishRequest& request, uint64_t number);

  std::atomic<bool> seal_posted_{false};
  WaitingLine to_seal_;  // one request per user in turn
  // last: its tasks use all of the above. Its own thread, so that the slow thread does not wait for seals
  Worker sealer_;
};

}  // namespace arraybridge::daemon
