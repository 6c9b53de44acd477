// SPDX-License-Identifier: Apache-2.0
// A Service::Core takes tickets, asks their callers for the requests, and answers them. It has no thread: the thread in
// Receive reads what callers say, and so does a request that is asked whether it was cancelled.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <arraybridge/services/service.h>

#include "client/lifeline/lifeline.h"
#include "client/services/figures.h"
#include "client/services/mailbox.h"
#include "client/services/request.h"
#include "client/services/suspicion.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class Service::Core : public services::Answering, public std::enable_shared_from_this<Service::Core> {
 public:
  struct Boxes {
    services::Mailbox requests, presence, tickets;
  };
  Core(Broker& broker, std::string service, const Options& options, std::string id, Boxes boxes);

  Result<ServiceRequest> Receive(std::optional<std::chrono::milliseconds> timeout) AB_EXCLUDES(mutex_);
  void Close() AB_EXCLUDES(mutex_);

  Result<bool> Answer(ServiceRequest::Core& request, ServiceLetter letter, const services::Content* content) override
      AB_EXCLUDES(mutex_);
  void ReadArrived(std::chrono::milliseconds wait) override AB_EXCLUDES(mutex_);

 private:
  using ARequest = std::shared_ptr<ServiceRequest::Core>;
  using Key = services::Key;
  struct Asked {
    Deadline until;  // when the caller has answered too late
    bool awaited;    // false: the server goes on meanwhile, because the caller is slow
    uint64_t called_ns;
  };

  // The next request that a caller has handed over; nothing: there is none. Drops those that are cancelled.
  std::optional<ServiceRequest> TakeGiven() AB_EXCLUDES(mutex_);
  // Waits for a ticket, and asks its caller. DEADLINE_EXCEEDED: there was none in time.
  Status AskForNext(std::optional<Deadline> until) AB_EXCLUDES(mutex_);
  Status Ask(const ServiceLetter& ticket, uint64_t called_ns) AB_EXCLUDES(mutex_);
  // Reads what one caller says. `wait`: the longest time to wait for it.
  Status ReadOne(std::chrono::milliseconds wait) AB_EXCLUDES(mutex_) AB_REQUIRES(reading_);
  void Handle(Acquired message) AB_EXCLUDES(mutex_);
  void Given(const ServiceLetter& letter, Acquired message) AB_EXCLUDES(mutex_);
  // Finds callers that have ended, if a notice has said that there is one.
  void Examine() AB_EXCLUDES(mutex_) AB_REQUIRES(reading_);
  // Callers that were asked and have ended, or take too long, are not waited for. Sends what has room now. True: it has
  // asked callers that are slow.
  bool Look() AB_EXCLUDES(mutex_);
  bool IsExpecting() AB_EXCLUDES(mutex_);
  bool IsAwaiting() AB_EXCLUDES(mutex_);
  // Expects the answer of a caller. False: it was asked before, or is slow: then it is asked when it has room.
  bool IsToBeAsked(const Key& key, const ServiceLetter& question, uint64_t called_ns) AB_EXCLUDES(mutex_);
  // Its caller lives, and has not answered in time.
  void Lapse(const Key& key) AB_EXCLUDES(mutex_);
  // Nothing: this caller has ended.
  std::optional<services::Mailbox> AnswersTo(const std::string& caller) AB_EXCLUDES(mutex_);
  // It is answered.
  void Release(const ServiceRequest::Core& request, bool failed) AB_EXCLUDES(mutex_);
  // A caller has ended.
  void Lose(const std::string& caller) AB_EXCLUDES(mutex_);

  Broker& broker_;
  const std::string service_;
  const Options options_;
  const std::string id_;
  Boxes boxes_;
  services::Figures figures_;

  Mutex receiving_;  // of the thread in Receive; it is locked before reading_
  Mutex reading_;    // of the thread that reads what callers say
  services::Suspicion suspicion_ AB_GUARDED_BY(reading_);

  Mutex mutex_;
  bool closed_ AB_GUARDED_BY(mutex_) = false;
  std::map<Key, Asked> asked_ AB_GUARDED_BY(mutex_);
  std::map<std::string, Deadline> slow_ AB_GUARDED_BY(mutex_);  // callers: until when nobody waits for them
  std::map<Key, ServiceLetter> unsent_ AB_GUARDED_BY(mutex_);   // they wait for room in the boxes of their callers
  std::map<Key, std::weak_ptr<ServiceRequest::Core>> held_ AB_GUARDED_BY(mutex_);  // not answered yet
  std::deque<ARequest> given_ AB_GUARDED_BY(mutex_);                               // not received yet
  std::map<std::string, services::Mailbox> answers_ AB_GUARDED_BY(mutex_);         // by caller
};

}  // namespace arraybridge
