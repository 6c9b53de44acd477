// PublishVerbs: Publish, waited or not. An unwaited publish stands in its session's queue, and its success is not
// answered. A request that looks for a name, takes one or lists them finds the shares of these publishes, since the
// queues of the namespace are served first.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/sessions/open_queue.h"
#include "daemon/config/config.h"
#include "daemon/service/publish_wire.h"
#include "daemon/service/reclaimer.h"
#include "daemon/service/service_counts.h"
#include "daemon/service/verbs/admission.h"
#include "daemon/service/verbs/caller.h"
#include "daemon/service/verbs/handover.h"
#include "daemon/service/verbs/session_cuts.h"
#include "daemon/service/waiting_line.h"
#include "daemon/service/worker.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe. One thread for seals that may sleep.
class PublishVerbs {
 public:
  // All outlive it.
  PublishVerbs(const Config& config, Broker& broker, const Admission& admission, WaitingLine& line,
               Reclaimer& reclaimer, Handover& handover, ServiceCounts& counts, SessionCuts& cuts);

  Result<Answer<v1::PublishResponse>> Publish(const Caller& caller, const PublishAsked& asked);
  // For a request that says `sealed`: the kernel may sleep over that seal. It has no place in the line to cancel.
  WaiterId PublishSealed(const Caller& caller, const PublishAsked& asked, const Reply<v1::PublishResponse>& reply);

  std::optional<OpenQueue> FindQueue(SessionId session) const { return broker_.QueueOf(session); }
  // Serves unwaited publishes, at most `most`; how many. A session that wrote an impossible entry is cut. `others`:
  // what happens to other requests between them.
  uint64_t ServePublishes(const OpenQueue& of, uint64_t most, SessionQueue::Others others);
  // Serves the unwaited publishes in the queues of this namespace, or of all of the user's: a name is there from the
  // moment that its request stands in a queue. False: no queue had any.
  bool ServeQueued(SessionId session, std::optional<std::string_view> ns);
  // The share has this name, and its bytes: requests that wait for it are served.
  void AnnounceName(SessionId maker, std::string_view ns, std::string_view name);

  void DropSession(SessionId session) { to_seal_.DropSession(session); }
  // The daemon drains.
  void ExpireAll() { to_seal_.ExpireAll(); }
  void WaitIdle(Clock::time_point deadline) { sealer_.WaitIdle(deadline); }
  // Its threads end. Not thread-safe.
  void Stop();

 private:
  // What every publish is, whichever way it came.
  Result<PublishedShare> Record(SessionId session, const PublishAsked& asked);

  const Config& config_;
  Broker& broker_;
  const Admission& admission_;
  WaitingLine& line_;
  Reclaimer& reclaimer_;
  Handover& handover_;
  ServiceCounts& counts_;
  SessionCuts& cuts_;
  std::atomic<bool> seal_posted_{false};
  WaitingLine to_seal_;  // one request of each user in turn
  Worker sealer_;        // last: its tasks use all of the above. The slow thread does not wait for a seal
};

}  // namespace arraybridge
