// SPDX-License-Identifier: Apache-2.0
// A ServiceCaller::Core gives each request to one server, and waits for the answers. One thread at a time reads letters
// for all: a thread that waits for its own answer, so that with one caller an answer passes from process to process
// without a hop between threads; or, while a call of Submit is open, a thread of the Core's own.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arraybridge/services/service.h>

#include "client/lifeline/lifeline.h"
#include "client/services/call.h"
#include "client/services/mailbox.h"
#include "client/services/suspicion.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class ServiceCaller::Core {
 public:
  struct Boxes {
    services::Mailbox answers, presence, tickets;
  };
  Core(Broker& broker, std::string service, MapMode mode, std::string id, Boxes boxes);
  ~Core();

  Result<Acquired> Call(std::span<const View> value, const CallOptions& options) AB_EXCLUDES(mutex_);
  std::future<Result<Acquired>> Submit(std::vector<View> value, const CallOptions& options) AB_EXCLUDES(mutex_);
  using ACall = std::shared_ptr<services::Call>;
  // A call whose answer has several items.
  ACall Stream(std::vector<View> value, const CallOptions& options) AB_EXCLUDES(mutex_);
  // Its next item; nothing: there is no further one.
  Result<std::optional<Acquired>> NextOf(services::Call& call) AB_EXCLUDES(mutex_);
  // No server gets the call from now on, an answer is dropped, and the outcome is `why`.
  void TakeBack(services::Call& call, const std::function<Status()>& why) AB_EXCLUDES(mutex_);
  void Close() AB_EXCLUDES(mutex_);

 private:
  enum class Kind { kWaits, kSubmitted, kStreams };
  ACall Begin(std::vector<View> value, const CallOptions& options, Kind kind) AB_EXCLUDES(mutex_);
  // Sends its ticket, without waiting, and has the Core's own thread read for it.
  void SubmitTicket(const ACall& call) AB_EXCLUDES(mutex_);
  // Sends its ticket; waits for room.
  void Announce(services::Call& call) AB_EXCLUDES(mutex_);
  // Reads a letter if no other thread does; otherwise waits until that one has. At most until `until`.
  Status Step(std::optional<Deadline> until) AB_EXCLUDES(mutex_);
  void ServeSubmitted() AB_EXCLUDES(mutex_);
  // The soonest end of a wait of a call that was submitted, after those are taken back that are over.
  std::optional<Deadline> ExpireSubmitted() AB_EXCLUDES(mutex_);
  // Sends the request to the server that has asked for it; nothing if none has, or another thread does.
  void Give(services::Call& call) AB_EXCLUDES(mutex_);
  void GiveSubmitted() AB_EXCLUDES(mutex_);
  // Sends what found no room in the box of a server.
  void SendUnsent() AB_EXCLUDES(mutex_);
  // The result of NextOf, if it is there; then SendUnsent tells the server that there is room again.
  std::optional<Result<std::optional<Acquired>>> TakeItem(services::Call& call) AB_EXCLUDES(mutex_);
  // A server says something of a call that it has.
  void Answered(services::Call& call, const ServiceLetter& letter, Acquired message) AB_REQUIRES(mutex_);
  // An item, or the end, of a call that streams has come.
  void AddItem(services::Call& call, Acquired message, const ServiceLetter& letter) AB_REQUIRES(mutex_);
  void Finish(services::Call& call, Result<Acquired> outcome) AB_REQUIRES(mutex_);
  void FinishIfOpen(services::Call& call, Result<Acquired> outcome) AB_EXCLUDES(mutex_);
  // All calls fail, and no call can be made any more.
  void FailAll(const Status& why) AB_EXCLUDES(mutex_);
  // The open calls for which this holds.
  std::vector<ACall> CallsThat(const std::function<bool(const services::Call&)>& holds) AB_EXCLUDES(mutex_);

  // Of the thread that reads:
  Status ReadOne(std::optional<Deadline> until) AB_EXCLUDES(mutex_);
  // No answer is there: also none that a server that has ended sent before. A server that found no room for its
  // question has dropped the ticket.
  void AllIsRead() AB_EXCLUDES(mutex_);
  void Handle(Acquired message) AB_EXCLUDES(mutex_);
  // A server has a ticket: it gets the request if no other one has it.
  void Asked(const ServiceLetter& letter, const Sender& server) AB_EXCLUDES(mutex_);
  // Nothing: it has ended since it asked.
  std::optional<services::Mailbox> ServerOf(const std::string& id) AB_EXCLUDES(mutex_);
  // A server has ended. `held`: the requests that it may have executed; null: all that it got.
  void Parted(const std::string& id, const std::vector<uint64_t>* held) AB_EXCLUDES(mutex_);
  // Finds servers that have ended, if a notice has said that there is one.
  void Examine() AB_EXCLUDES(mutex_);
  // At times asks whether a server has ended that may have had tickets.
  bool AServerHasEnded() AB_EXCLUDES(mutex_);
  // Sends tickets that are due, or may be lost.
  void SendTickets() AB_EXCLUDES(mutex_);

  Broker& broker_;
  const std::string service_;
  const MapMode mode_;
  const std::string id_;
  Boxes boxes_;

  Mutex mutex_;
  ConditionVariable changed_;
  bool reading_ AB_GUARDED_BY(mutex_) = false;  // a thread reads letters
  uint64_t number_ AB_GUARDED_BY(mutex_) = 0;
  uint64_t submitted_ AB_GUARDED_BY(mutex_) = 0;  // open calls for which no thread waits
  Status lost_ AB_GUARDED_BY(mutex_);             // why no call can be made any more
  std::map<uint64_t, ACall> calls_ AB_GUARDED_BY(mutex_);
  std::map<std::string, services::Mailbox> servers_ AB_GUARDED_BY(mutex_);
  std::deque<std::pair<std::string, ServiceLetter>> unsent_ AB_GUARDED_BY(mutex_);  // to servers without room
  std::thread thread_ AB_GUARDED_BY(mutex_);

  // Of the thread that reads:
  services::Suspicion suspicion_;
  std::set<std::string> gone_;  // servers that have ended, and whose last answers may not be read yet
  bool tickets_due_ = false;    // some were not sent yet
  bool was_slow_ = false;       // servers may have asked in vain
  Deadline look_at_{};          // when presence is looked at again
};

// A call whose items a ServiceAnswers takes.
struct ServiceAnswers::Core {
  Core(std::shared_ptr<ServiceCaller::Core> its_caller, ServiceCaller::Core::ACall its_call)
      : caller(std::move(its_caller)), call(std::move(its_call)) {}
  ~Core();
  void Close();

  const std::shared_ptr<ServiceCaller::Core> caller;
  const ServiceCaller::Core::ACall call;
};

}  // namespace arraybridge
