// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/handover.h"

#include <utility>
#include <vector>

#include "daemon/service/verbs/channel_turns.h"
#include "daemon/service/wire/message_limits.h"

namespace arraybridge::daemon {
namespace {

constexpr size_t kReturnedMax = 64;  // returned ranges in one answer

}  // namespace

Result<std::string> Handover::TicketFor(SessionId session, ArenaId arena, Access access) {
  AB_ASSIGN_OR_RETURN(const auto token, broker_.IssueTicket(session, arena, access));
  reclaimer_.sweeper().After(config_.limits.ticket_lifetime);
  return std::string(token.begin(), token.end());
}

wire::Ticket Handover::TicketOf(std::string_view token) const {
  return {.token = token, .lifetime_ms = static_cast<uint64_t>(config_.limits.ticket_lifetime.get().count())};
}

std::vector<wire::Range> Handover::Returned(const Caller& caller) {
  std::vector<wire::Range> ranges;
  if (!caller.hears) return ranges;  // the next answer has them
  for (const RangeOfArena& range : broker_.TakeReturned(caller.session, kReturnedMax)) {
    ranges.push_back({Number(range.arena), range.offset, range.size});
  }
  return ranges;
}

Answer Handover::Published(const Caller& caller, const PublishedShare& published) {
  return AnswerOf(wire::PublishResponse{.share = Number(published.share),
                                        .name = published.name,
                                        .generation = published.generation,
                                        .immutability = static_cast<wire::Immutability>(published.immutability),
                                        .returned = Returned(caller)});
}

Result<Answer> Handover::Leased(const Caller& caller, AcquiredShares acquired) {
  Answer answer;
  for (const LeasedShare& leased : acquired.shares) AppendLeased(leased, &answer.message);
  Status failed = caller.door == Door::kLifeline ? Ok() : AppendTickets(caller.session, acquired, &answer.message);
  if (acquired.descriptor) {
    AppendDescriptorArena(acquired.descriptor->arena, &answer.message);
    answer.descriptor = PassedFd(std::move(acquired.descriptor->descriptor), acquired.descriptor->kind);
  }
  if (failed.ok() && answer.message.size() > AnswerBytesMax(config_.limits)) {
    failed = ResourceExhausted("the answer has ", answer.message.size(), " bytes (the most is ",
                               config_.limits.frame_bytes_max, "): ask for fewer shares at once")
                 .Because("ANSWER_TOO_LARGE");
  }
  if (failed.ok()) return answer;
  TakeBack(caller, answer.message);
  return failed;
}

Status Handover::AppendTickets(SessionId session, const AcquiredShares& acquired, std::string* response) {
  for (const LeasedShare& leased : acquired.shares) {
    wire::AcquireResponse tickets;
    std::string token;
    if (leased.handle.opaque.empty()) {
      auto ticket = TicketFor(session, ArenaId{leased.handle.arena}, Access::kRead);
      if (!ticket.ok()) return ticket.status();
      token = *std::move(ticket);
    }
    tickets.tickets.push_back(token.empty() ? wire::Ticket{} : TicketOf(token));  // empty: the handle is complete
    *response += wire::Encode(tickets);
  }
  return Ok();
}

// A client that received no descriptor has no mapping either.
void Handover::TakeBack(const Caller& caller, std::string_view granted) {
  const auto message = wire::Decode<wire::AcquireResponse>(granted);
  if (!message.ok()) return;  // this daemon wrote it
  std::vector<uint64_t> leases;
  std::vector<Received> received;
  for (const wire::LeasedShare& leased : message->shares) {
    leases.push_back(leased.lease);
    if (leased.sent) received.push_back({LeaseId{leased.lease}, ChannelEndId{leased.sent->receiver}});
  }
  const uint64_t arena = message->descriptor_arena;
  // Posted, because a door may call this with a lock held that its answers need.
  for (const ChannelId channel : broker_.PutBack(caller.session, received)) {
    reclaimer_.Post([this, channel] { ServeChannel(line_, broker_, channel); });
  }
  static_cast<void>(broker_.Release(caller.session, leases, {}, {&arena, arena == 0 ? 0u : 1u}));
  reclaimer_.Reclaim();
}

}  // namespace arraybridge::daemon
