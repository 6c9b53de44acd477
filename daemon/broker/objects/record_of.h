// SPDX-License-Identifier: Apache-2.0
// The journal's records of objects (ledger/records.proto). Texts are views of the object's.
#pragma once

#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/ledger/records.h"

namespace arraybridge::daemon {

class Arena;
class Channel;
struct ChannelEnd;
struct DirectChannelRecord;
struct RangeOfArena;
struct Session;
struct Share;
struct Ticket;

record::Arena RecordOf(const Arena& arena);
record::Share RecordOf(const Share& share);
record::Session RecordOf(const Session& session);
// A range that its writer may carve again once it knows of it.
record::Returned RecordOf(const RangeOfArena& range, SessionId session);
record::Ticket RecordOf(const Ticket& ticket, SessionId session);
record::Channel RecordOf(const Channel& channel);
// REQUIRES: the end is a member of its channel.
record::ChannelEnd RecordOf(const ChannelEnd& end, ChannelEndId id);
record::DirectChannel RecordOf(const DirectChannelRecord& direct);

}  // namespace arraybridge::daemon
