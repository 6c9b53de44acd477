// Verbs is where a message becomes a call of the Broker and its result a message again: one function a verb, serving
// both doors. Every limit on a message is checked here. A door adds only how bytes travel.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/broker.h"
#include "daemon/config.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

class WaitingLine;
class Worker;

// Who asks, and at which door: a lifeline gets descriptors, gRPC gets tickets for them.
struct Caller {
  SessionId session{};
  Door door = Door::kLifeline;
};

template <class Message>
struct Answer {
  Message message;
  UniqueFd descriptor;  // rides along on a lifeline; always invalid at the gRPC door
};

// Called exactly once, on any thread, maybe before the verb returns; not at all after Cancel or the session's end.
template <class Message>
using Reply = std::function<void(Result<Answer<Message>>)>;

// A place in the waiting line; 0: answered already (or being answered by a worker: then Cancel has no effect).
enum class WaiterId : uint64_t {};

// Thread-safe.
class Verbs {
 public:
  Verbs(const Config& config, Broker& broker, WaitingLine& line, Worker& worker);

  v1::GetServerInfoResponse GetServerInfo() const;
  // FAILED_PRECONDITION names both protocol ranges if they do not meet.
  Result<v1::OpenSessionResponse> OpenSession(const v1::OpenSessionRequest& request, Peer peer);
  // Drops its waiters, ends it in the broker, asks for a sweep.
  void EndSession(SessionId session, EndCause cause);

  WaiterId Allocate(const Caller& caller, const v1::AllocateRequest& request, Reply<v1::AllocateResponse> reply);
  Result<Answer<v1::MappedResponse>> Mapped(const Caller& caller, const v1::MappedRequest& request);
  Result<Answer<v1::PublishResponse>> Publish(const Caller& caller, v1::PublishRequest& request);
  WaiterId Acquire(const Caller& caller, const v1::AcquireRequest& request, Reply<v1::AcquireResponse> reply);
  Result<Answer<v1::ExportResponse>> Export(const Caller& caller, const v1::ExportRequest& request);
  Result<Answer<v1::ReleaseResponse>> Release(const Caller& caller, const v1::ReleaseRequest& request);
  Result<Answer<v1::WithdrawResponse>> Withdraw(const Caller& caller, const v1::WithdrawRequest& request);
  Result<Answer<v1::ListResponse>> List(const Caller& caller, const v1::ListRequest& request);
  Result<Answer<v1::GetStatsResponse>> GetStats(const Caller& caller, const v1::GetStatsRequest& request);
  Result<Answer<v1::RedeemResponse>> Redeem(const Caller& caller, const v1::RedeemRequest& request);
  // The caller went away: its reply is dropped.
  void Cancel(WaiterId waiter);

  // Somebody waits for memory: answers ask clients to give back what they do not use.
  bool memory_wanted() const;
  // From now on new work is answered UNAVAILABLE; Release, Withdraw and reads still work.
  void Drain();
  bool draining() const { return draining_.load(std::memory_order_relaxed); }
  // Counted by the doors.
  void CountRefusal() { refusals_.fetch_add(1, std::memory_order_relaxed); }
  void CountCut() { cuts_.fetch_add(1, std::memory_order_relaxed); }

 private:
  const Config& config_;
  Broker& broker_;
  WaitingLine& line_;
  Worker& worker_;
  const Clock::time_point started_;
  std::atomic<bool> draining_{false};
  std::atomic<uint64_t> refusals_{0};
  std::atomic<uint64_t> cuts_{0};
};

}  // namespace arraybridge
