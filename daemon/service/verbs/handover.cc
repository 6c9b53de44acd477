// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/handover.h"

#include <utility>
#include <vector>

#include "daemon/service/verbs/channel_turns.h"
#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/messages.h"
#include "daemon/service/wire/share_wire.h"

namespace arraybridge {
namespace {

constexpr size_t kReturnedMax = 64;  // returned ranges in one answer

}  // namespace

Result<v1::Ticket> Handover::TicketFor(SessionId session, ArenaId arena, Access access) {
  const auto token = broker_.IssueTicket(session, arena, access);
  if (!token.ok()) return token.status();
  reclaimer_.sweeper().After(config_.limits.ticket_lifetime);
  v1::Ticket ticket;
  ticket.set_token(token->data(), token->size());
  ticket.set_lifetime_ms(static_cast<uint64_t>(config_.limits.ticket_lifetime.get().count()));
  return ticket;
}

Result<Handover::Handed> Handover::HandOver(const Caller& caller, Handle& handle, Access access) {
  Handed handed;
  if (caller.door == Door::kLifeline) {
    handed.descriptor = PassedFd(std::move(handle.descriptor), handle.kind);
    return handed;
  }
  if (!handle.descriptor.valid()) return handed;
  auto ticket = TicketFor(caller.session, ArenaId{handle.arena}, access);
  if (!ticket.ok()) return ticket.status();
  handed.ticket = *std::move(ticket);
  return handed;
}

void Handover::AddReturned(const Caller& caller, google::protobuf::RepeatedPtrField<v1::Range>* returned) {
  if (!caller.hears) return;  // the next answer has them
  for (const RangeOfArena& range : broker_.TakeReturned(caller.session, kReturnedMax)) {
    v1::Range* message = returned->Add();
    message->set_arena(Number(range.arena));
    message->set_offset(range.offset);
    message->set_size(range.size);
  }
}

Answer<v1::PublishResponse> Handover::AnswerOf(const Caller& caller, PublishedShare published) {
  Answer<v1::PublishResponse> answer;
  answer.message.set_share(Number(published.share));
  answer.message.set_name(std::move(published.name));
  answer.message.set_generation(published.generation);
  answer.message.set_immutability(ToMessage(published.immutability));
  AddReturned(caller, answer.message.mutable_returned());
  return answer;
}

Result<PassedFd> Handover::EncodeLeases(const Caller& caller, AcquiredShares acquired, std::string* response) {
  response->clear();
  for (const LeasedShare& leased : acquired.shares) AppendLeased(leased, response);
  Status failed = caller.door == Door::kLifeline ? Ok() : AppendTickets(caller.session, acquired, response);
  PassedFd descriptor;
  if (acquired.descriptor) {
    AppendDescriptorArena(acquired.descriptor->arena, response);
    descriptor = PassedFd(std::move(acquired.descriptor->descriptor), acquired.descriptor->kind);
  }
  if (failed.ok() && response->size() > AnswerBytesMax(config_.limits)) {
    failed = ResourceExhausted("the answer has ", response->size(), " bytes (limits.frame_bytes_max ",
                               config_.limits.frame_bytes_max, "): ask for fewer shares at once")
                 .Because("ANSWER_TOO_LARGE");
  }
  if (failed.ok()) return descriptor;
  v1::AcquireResponse granted;
  ReadBack(*response, &granted);
  TakeBack(caller, granted);
  return failed;
}

Status Handover::AppendTickets(SessionId session, const AcquiredShares& acquired, std::string* response) {
  v1::AcquireResponse tickets;
  for (const LeasedShare& leased : acquired.shares) {
    if (!leased.handle.opaque.empty()) {
      tickets.add_tickets();  // the handle is complete
      continue;
    }
    auto ticket = TicketFor(session, ArenaId{leased.handle.arena}, Access::kRead);
    if (!ticket.ok()) return ticket.status();
    *tickets.add_tickets() = *std::move(ticket);
  }
  tickets.AppendToString(response);
  return Ok();
}

Result<Answer<v1::AcquireResponse>> Handover::DecodeLeases(const Caller& caller, const std::string& bytes,
                                                           PassedFd descriptor) {
  Answer<v1::AcquireResponse> answer;
  answer.descriptor = std::move(descriptor);
  if (ReadBack(bytes, &answer.message)) return answer;
  TakeBack(caller, answer.message);
  return Status(Code::kInternal, "the encoded description of a share is malformed");
}

// A client that received no descriptor has no mapping either.
void Handover::TakeBack(const Caller& caller, const v1::AcquireResponse& granted) {
  std::vector<uint64_t> leases;
  std::vector<Received> received;
  for (const auto& leased : granted.shares()) {
    leases.push_back(leased.lease());
    if (leased.has_sent()) received.push_back({LeaseId{leased.lease()}, ChannelEndId{leased.sent().receiver()}});
  }
  const uint64_t arena = granted.descriptor_arena();
  // Posted, because a door may call this with a lock held that its answers need.
  for (const ChannelId channel : broker_.PutBack(caller.session, received)) {
    reclaimer_.Post([this, channel] { ServeChannel(line_, broker_, channel); });
  }
  static_cast<void>(broker_.Release(caller.session, leases, {}, {&arena, arena == 0 ? 0u : 1u}));
  reclaimer_.Reclaim();
}

}  // namespace arraybridge
