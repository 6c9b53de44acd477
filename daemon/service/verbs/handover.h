// SPDX-License-Identifier: Apache-2.0
// A Handover gives a caller the resources of its answer. These are a descriptor on a lifeline, a ticket for it at the
// gRPC door, leases as the bytes of an AcquireResponse, and the returned ranges of its arenas. It takes the resources
// back if the answer cannot be delivered.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/reclaim/reclaimer.h"
#include "daemon/service/reclaim/waiting_line.h"
#include "daemon/service/verbs/caller.h"
#include "daemon/service/wire/share_wire.h"
#include "proto/boundary/result.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {

// Thread-safe.
class Handover {
 public:
  // All arguments outlive it.
  Handover(const Config& config, Broker& broker, WaitingLine& line, Reclaimer& reclaimer)
      : config_(config), broker_(broker), line_(line), reclaimer_(reclaimer) {}

  // The answer with this message, an AllocateResponse or an ExportResponse, and the handle in it. No descriptor and no
  // ticket if the handle's opaque bytes alone open it.
  template <class Message>
  Result<Answer> HandOver(const Caller& caller, Message message, Handle& handle, Access access) {
    message.handle = ToWire(handle);
    std::string token;
    if (caller.door != Door::kLifeline && handle.descriptor.valid()) {
      auto ticket = TicketFor(caller.session, ArenaId{handle.arena}, access);
      if (!ticket.ok()) return ticket.status();
      token = *std::move(ticket);
      message.ticket = TicketOf(token);
    }
    Answer answer = AnswerOf(message);
    if (caller.door == Door::kLifeline) answer.descriptor = PassedFd(std::move(handle.descriptor), handle.kind);
    return answer;
  }
  // Ranges that the caller may carve again; each is returned once.
  std::vector<wire::Range> Returned(const Caller& caller);
  Answer Published(const Caller& caller, const PublishedShare& published);

  // The leases as an AcquireResponse, and their descriptor. RESOURCE_EXHAUSTED, ANSWER_TOO_LARGE, or tickets cannot be
  // issued: the leases are taken back.
  Result<Answer> Leased(const Caller& caller, AcquiredShares acquired);
  // Undoes a grant whose answer, an AcquireResponse, cannot reach the caller. A lease or session that is gone meanwhile
  // is no error.
  void TakeBack(const Caller& caller, std::string_view granted);

 private:
  // The ticket's token.
  Result<std::string> TicketFor(SessionId session, ArenaId arena, Access access);
  wire::Ticket TicketOf(std::string_view token) const;
  Status AppendTickets(SessionId session, const AcquiredShares& acquired, std::string* response);

  const Config& config_;
  Broker& broker_;
  WaitingLine& line_;
  Reclaimer& reclaimer_;
};

}  // namespace arraybridge::daemon
