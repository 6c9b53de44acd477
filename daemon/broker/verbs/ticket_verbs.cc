// SPDX-License-Identifier: Apache-2.0
// The Broker's verbs on tickets: descriptors for sessions that speak gRPC.
#include <utility>

#include "daemon/broker/verbs/state.h"

namespace arraybridge::daemon {

Result<Token> Broker::IssueTicket(SessionId session, ArenaId arena, Access access) {
  State& state = *state_;
  const Limits& limits = state.config.limits;
  const auto now = Clock::now();
  Ticket ticket{RandomBytes<Token>(), arena, access, now + limits.ticket_lifetime.get()};
  const MutexLock lock(state.mutex);
  AB_ASSIGN_OR_RETURN(Session* const found, state.sessions.Get(session));
  const bool writes = access == Access::kWrite;
  if ((writes ? state.arenas.FindWritable(*found, arena) : state.arenas.FindReadable(*found, arena)) == nullptr) {
    return NoArena(arena);
  }
  state.sessions.DropLateTickets(*found, now);
  if (found->tickets.size() >= limits.tickets_per_session) {
    return AtLimit("TOO_MANY_TICKETS", "tickets_per_session", limits.tickets_per_session);
  }
  AB_RETURN_IF_ERROR(state.journal.CheckRoom());
  ticket.record = state.journal.Add(record::kTicket, RecordOf(ticket, session));
  found->tickets.Add(ticket);
  return ticket.token;
}

Result<Broker::Redeemed> Broker::Redeem(SessionId session, std::span<const uint8_t> token) {
  State& state = *state_;
  Redeemed redeemed;
  std::shared_ptr<MemoryBlock> block;
  {
    const MutexLock lock(state.mutex);
    AB_ASSIGN_OR_RETURN(Session* const found, state.sessions.Get(session));
    const auto now = Clock::now();
    state.sessions.DropLateTickets(*found, now);
    const auto ticket = found->tickets.Take(token, now);
    redeemed.writable = ticket.has_value() && ticket->access == Access::kWrite;
    Arena* arena = nullptr;
    if (ticket.has_value()) {
      state.journal.Erase(ticket->record);
      // The broker looks the arena up again: the lease that justified the ticket may have ended since.
      arena = redeemed.writable ? state.arenas.FindWritable(*found, ticket->arena)
                                : state.arenas.FindReadable(*found, ticket->arena);
    }
    if (arena == nullptr) {
      ++state.sessions.tickets.refused;
      return NotFound("no such ticket").Because("TICKET_NOT_FOUND");
    }
    ++state.sessions.tickets.redeemed;
    redeemed.handle = arena->Describe();
    block = arena->block();
    if (!redeemed.writable) state.arenas.AddReader(*found, *arena);
  }
  AB_ASSIGN_OR_RETURN(auto exported, block->Export(redeemed.writable ? Access::kWrite : Access::kRead));
  redeemed.handle.descriptor = std::move(exported.descriptor);
  redeemed.handle.opaque = std::move(exported.opaque);
  return redeemed;
}

}  // namespace arraybridge::daemon
