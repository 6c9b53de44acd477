// SPDX-License-Identifier: Apache-2.0
// Verbs convert messages to calls of the Broker and results to messages, for both doors: one class per noun, one
// function per verb, one table of all verbs. Every limit on a message is checked here. A door only transports bytes.
#pragma once

#include <functional>
#include <string_view>

#include "daemon/service/verbs/arena_verbs.h"
#include "daemon/service/verbs/caller.h"
#include "daemon/service/verbs/channel_verbs.h"
#include "daemon/service/verbs/list_verbs.h"
#include "daemon/service/verbs/publish_verbs.h"
#include "daemon/service/verbs/session_verbs.h"
#include "daemon/service/verbs/share_verbs.h"
#include "daemon/service/verbs/tiers/tier_verbs.h"
#include "daemon/service/verbs/verb_parts.h"
#include "daemon/service/verbs/watch_verbs.h"
#include "proto/boundary/frame.h"

namespace arraybridge::daemon {

// Thread-safe.
class Verbs {
 public:
  // `allocated` runs after each allocation and must not block; it refills the warm blocks. All arguments outlive it.
  Verbs(const Config& config, Broker& broker, std::function<void()> allocated, NoGpu no_gpu = {}, Life life = {});
  ~Verbs();
  Verbs(const Verbs&) = delete;
  Verbs& operator=(const Verbs&) = delete;

  // Serves a request whose bytes are the message of this verb; `later` is called if it has to wait. INVALID_ARGUMENT:
  // the bytes are no such message. OpenSession is the door's own, and so are Doorbell and Recovered: UNIMPLEMENTED.
  Result<Served> Serve(const Caller& caller, Verb verb, std::string_view bytes, const Later& later);
  // Drops the reply of a caller that is gone. No effect if the request is being answered.
  void Cancel(WaiterId waiter) { line_.Cancel(waiter); }
  // Whether a request waits for memory that this user may hold: answers then ask clients to give back unused arenas.
  bool memory_wanted(uint32_t uid) const { return line_.wanted(uid); }
  // Takes back the resources that the answer of this verb grants. The answer cannot reach the caller. A resource or
  // session that is gone meanwhile is no error. A published share remains.
  void TakeBack(const Caller& caller, Verb verb, std::string_view answer);

  // From now on new work, and requests that wait, are answered UNAVAILABLE. Release, Withdraw and reads still work.
  void Drain();
  bool draining() const { return admission_.draining(); }
  // Returns when the slow threads have run their tasks, or at `deadline`.
  void WaitIdle(Clock::time_point deadline);

  Reclaimer& reclaimer() { return reclaimer_; }
  // The doors register how they end a session.
  SessionCuts& cuts() { return cuts_; }
  // The counts of the doors.
  ServiceCounts& counts() { return counts_; }
  const ServiceCounts& counts() const { return counts_; }

 private:
  Served Publish(const Caller& caller, const wire::PublishRequest& request, std::string_view bytes, const Later& later);

  // Each part uses those above it. ~Verbs ends all threads before the first part is destroyed.
  const RunsAt here_ = RunsAt::Here();
  Admission admission_;
  WaitingLine line_;
  SessionCuts cuts_;
  ServiceCounts counts_;
  Reclaimer reclaimer_;
  Handover handover_;
  const VerbParts parts_;

 public:
  PublishVerbs publishes;
  TierVerbs tiers;
  ShareVerbs shares;
  ChannelVerbs channels;
  ArenaVerbs arenas;
  ListVerbs lists;
  WatchVerbs watches;
  SessionVerbs sessions;
};

}  // namespace arraybridge::daemon
