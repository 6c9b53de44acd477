// A Handover gives a caller what its answer promises: the descriptor on a lifeline, a ticket for it at the gRPC door,
// leases as the bytes of an AcquireResponse, and the ranges of its arenas that came back. It takes back what an answer
// granted in vain.
#pragma once

#include <optional>
#include <string>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/reclaimer.h"
#include "daemon/service/verbs/caller.h"
#include "daemon/service/waiting_line.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe.
class Handover {
 public:
  // All outlive it.
  Handover(const Config& config, Broker& broker, WaitingLine& line, Reclaimer& reclaimer)
      : config_(config), broker_(broker), line_(line), reclaimer_(reclaimer) {}

  // Where the handle's opaque bytes are all that opens it, neither.
  struct Handed {
    PassedFd descriptor;
    std::optional<v1::Ticket> ticket;
  };
  Result<Handed> HandOver(const Caller& caller, Handle& handle, Access access);
  // Each is handed out once.
  void AddReturned(const Caller& caller, google::protobuf::RepeatedPtrField<v1::Range>* returned);
  Answer<v1::PublishResponse> AnswerOf(const Caller& caller, PublishedShare published);

  // Leases as the bytes of an answer, and their descriptor. RESOURCE_EXHAUSTED, ANSWER_TOO_LARGE; no tickets: the
  // leases are taken back.
  Result<PassedFd> EncodeLeases(const Caller& caller, AcquiredShares acquired, std::string* response);
  // The same bytes as a message, for gRPC and for a request that has waited. INTERNAL: they cannot be read, and the
  // leases are taken back.
  Result<Answer<v1::AcquireResponse>> DecodeLeases(const Caller& caller, const std::string& bytes, PassedFd descriptor);
  // Its caller will never hear of it. What has gone meanwhile is no failure.
  void TakeBack(const Caller& caller, const v1::AcquireResponse& granted);

 private:
  Result<v1::Ticket> TicketFor(SessionId session, ArenaId arena, Access access);
  Status AppendTickets(SessionId session, const AcquiredShares& acquired, std::string* response);

  const Config& config_;
  Broker& broker_;
  WaitingLine& line_;
  Reclaimer& reclaimer_;
};

}  // namespace arraybridge
