// SPDX-License-Identifier: Apache-2.0
// A Handover gives a caller the resources of its answer: a descriptor on a lifeline, a ticket for it at the gRPC door,
// leases as the bytes of an AcquireResponse, and the returned ranges of its arenas. It takes the resources back if the
// answer cannot be delivered.
#pragma once

#include <optional>
#include <string>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/reclaim/reclaimer.h"
#include "daemon/service/reclaim/waiting_line.h"
#include "daemon/service/verbs/caller.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe.
class Handover {
 public:
  // All arguments outlive it.
  Handover(const Config& config, Broker& broker, WaitingLine& line, Reclaimer& reclaimer)
      : config_(config), broker_(broker), line_(line), reclaimer_(reclaimer) {}

  // Both are empty if the handle's opaque bytes alone open it.
  struct Handed {
    PassedFd descriptor;
    std::optional<v1::Ticket> ticket;
  };
  Result<Handed> HandOver(const Caller& caller, Handle& handle, Access access);
  // Adds returned ranges; each range is returned once.
  void AddReturned(const Caller& caller, google::protobuf::RepeatedPtrField<v1::Range>* returned);
  Answer<v1::PublishResponse> AnswerOf(const Caller& caller, PublishedShare published);

  // Encodes leases as the bytes of an answer, and returns their descriptor. RESOURCE_EXHAUSTED, ANSWER_TOO_LARGE, or
  // tickets cannot be issued: the leases are taken back.
  Result<PassedFd> EncodeLeases(const Caller& caller, AcquiredShares acquired, std::string* response);
  // The same bytes as a message, for gRPC and for a request that has waited. INTERNAL: the bytes are malformed; the
  // leases are taken back.
  Result<Answer<v1::AcquireResponse>> DecodeLeases(const Caller& caller, const std::string& bytes, PassedFd descriptor);
  // Undoes a grant whose answer cannot reach the caller. A lease or session that is gone meanwhile is no error.
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
