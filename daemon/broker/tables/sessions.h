// SPDX-License-Identifier: Apache-2.0
// Sessions holds all live sessions by number and by token, and their queues.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "daemon/broker/ledger/counter.h"
#include "daemon/broker/ledger/deferred_release.h"
#include "daemon/broker/ledger/flags.h"
#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/objects/calls.h"
#include "daemon/broker/objects/open_queue.h"
#include "daemon/broker/objects/session.h"
#include "daemon/broker/tables/journal.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

Status NoSession();

// Not thread-safe: the broker's lock guards it.
class Sessions {
 public:
  using Table = std::map<SessionId, std::unique_ptr<Session>>;

  // All arguments outlive the table. Dropped queues go to `released`.
  Sessions(Flags& flags, DeferredRelease& released, Journal& journal)
      : flags_(flags), released_(released), journal_(journal) {}

  Session* Find(SessionId id) const;         // null: it has ended or never existed
  Result<Session*> Get(SessionId id) const;  // NoSession
  std::optional<SessionId> Of(std::span<const uint8_t> token) const;
  // Assigns the session's number and counts it in its account. REQUIRES: it has a token.
  OpenedSession Add(std::unique_ptr<Session> session);
  // The same for a session that has its number, from the previous daemon.
  Session& Restore(std::unique_ptr<Session> session);
  // Null: there is none. Removes the session from its account's count; its record stays.
  std::unique_ptr<Session> Remove(SessionId id);

  // REQUIRES: the session has no queue.
  void AddQueue(Session& session, OpenQueue open);
  void DropQueue(Session& session);
  std::optional<OpenQueue> FindQueue(SessionId session) const;
  const std::vector<OpenQueue>& queues() const { return queues_; }

  const Table& all() const { return all_; }
  uint64_t total() const { return ids.last(); }

  Counter ids;

  void DropLateTickets(Session& session, Clock::time_point now);
  void SetAwaited(Session& session, bool is_awaited);
  // Totals of all sessions.
  struct TicketCounts {
    uint64_t redeemed = 0;
    uint64_t expired = 0;  // or dropped with their session
    uint64_t refused = 0;
  };
  TicketCounts tickets;
  uint64_t awaited = 0;  // sessions that wait for their client

 private:
  Flags& flags_;
  DeferredRelease& released_;
  Journal& journal_;
  Table all_;
  std::map<Token, SessionId> tokens_;
  std::vector<OpenQueue> queues_;
};

}  // namespace arraybridge::daemon
