// Verbs are where a message becomes a call of the Broker and its result a message again, for both doors: one class a
// noun, one function a verb. Every limit on a message is checked here. A door adds only how bytes travel.
#pragma once

#include <functional>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/handle_offer.h"
#include "daemon/service/reclaimer.h"
#include "daemon/service/service_counts.h"
#include "daemon/service/verbs/admission.h"
#include "daemon/service/verbs/arena_verbs.h"
#include "daemon/service/verbs/caller.h"
#include "daemon/service/verbs/channel_verbs.h"
#include "daemon/service/verbs/handover.h"
#include "daemon/service/verbs/list_verbs.h"
#include "daemon/service/verbs/publish_verbs.h"
#include "daemon/service/verbs/session_cuts.h"
#include "daemon/service/verbs/session_verbs.h"
#include "daemon/service/verbs/share_verbs.h"
#include "daemon/service/verbs/watch_verbs.h"
#include "daemon/service/waiting_line.h"

namespace arraybridge {

// Thread-safe.
class Verbs {
 public:
  // `allocated` runs after an arena was given out, and must not block: warm blocks are refilled then. All outlive it.
  Verbs(const Config& config, Broker& broker, std::function<void()> allocated, NoGpu no_gpu = {});
  ~Verbs();
  Verbs(const Verbs&) = delete;
  Verbs& operator=(const Verbs&) = delete;

  // The caller went away: its reply is dropped. Without effect on one that is being answered.
  void Cancel(WaiterId waiter) { line_.Cancel(waiter); }
  // A request waits for memory that this user may hold: answers ask clients to give back unused arenas.
  bool memory_wanted(uint32_t uid) const { return line_.wanted(uid); }
  // Undoes what an answer granted that its caller will never hear. What has gone meanwhile is no failure.
  void TakeBack(const Caller& caller, const v1::AllocateResponse& granted) { arenas.TakeBack(caller, granted); }
  void TakeBack(const Caller& caller, const v1::AcquireResponse& granted) { handover_.TakeBack(caller, granted); }
  void TakeBack(const Caller& caller, const v1::ExportResponse& granted) { arenas.TakeBack(caller, granted); }

  // From now on new work is answered UNAVAILABLE, and so are requests that wait; Release, Withdraw and reads still
  // work.
  void Drain();
  bool draining() const { return admission_.draining(); }
  // Returns when the slow threads have done their work, or at `deadline`.
  void WaitIdle(Clock::time_point deadline);

  Reclaimer& reclaimer() { return reclaimer_; }
  // The doors register how they end a session.
  SessionCuts& cuts() { return cuts_; }
  // What the doors count.
  ServiceCounts& counts() { return counts_; }
  const ServiceCounts& counts() const { return counts_; }

 private:
  // Each part uses those above it. ~Verbs ends all threads before the first part dies.
  const RunsAt here_ = RunsAt::Here();
  Admission admission_;
  WaitingLine line_;
  SessionCuts cuts_;
  ServiceCounts counts_;
  Reclaimer reclaimer_;
  Handover handover_;

 public:
  PublishVerbs publishes;
  ShareVerbs shares;
  ChannelVerbs channels;
  ArenaVerbs arenas;
  ListVerbs lists;
  WatchVerbs watches;
  SessionVerbs sessions;
};

}  // namespace arraybridge
