// SPDX-License-Identifier: Apache-2.0
// The Journal is what the next daemon needs if this one is killed now: a record of each arena, share, session, lease
// and page, and the descriptors of their memory in the DescriptorStore. The tables of the broker call it with each
// change; there is no other way to save state. Recovery reads it.
//
// Without a DescriptorStore nothing is written.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/broker/ledger/counter.h"
#include "daemon/broker/ledger/ids.h"
#include "daemon/broker/ledger/records.h"
#include "daemon/memory/descriptor_store.h"
#include "daemon/memory/shared_pages/record_file.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

class Arena;
class Channel;
class Namespace;
struct ChannelEnd;
struct DirectChannelRecord;
struct RangeOfArena;
struct Session;
struct Share;
struct Ticket;

// Not thread-safe: the broker's lock guards it, except Store and keeps.
class Journal {
 public:
  using Place = RecordFile::Place;

  // Nothing is written.
  Journal() = default;
  // REQUIRES: called once, before any other call. Both outlive the journal.
  void Begin(std::unique_ptr<RecordFile> file, DescriptorStore& store);
  bool keeps() const { return file_ != nullptr; }

  // RESOURCE_EXHAUSTED, SYSTEM_MEMORY: there is no memory for the records of one more call. `bytes`: the texts that it
  // stores.
  Status CheckRoom(uint64_t bytes = 0);

  void Put(Arena& arena);
  void Erase(Arena& arena);
  void Put(Share& share);
  void Erase(Share& share);
  void Put(Session& session);
  void Erase(Session& session);
  // `receiver`: the end of a channel that received the share, or 0.
  Place PutLease(LeaseId lease, const Session& session, const Share& share, uint64_t request,
                 ChannelEndId receiver = {});
  void Put(Channel& channel);
  void Erase(Channel& channel);
  // REQUIRES: the end is a member of its channel.
  void Put(ChannelEndId id, ChannelEnd& end);
  void Put(DirectChannelRecord& direct);
  void Erase(DirectChannelRecord& direct);
  // A range that its writer may carve again once it knows of it.
  Place PutReturned(const Session& session, const RangeOfArena& range);
  void Erase(Place record);
  // `page`: from NextPage.
  Place PutPage(record::Kind kind, uint64_t page, const Session* session, const Namespace& ns);
  Place PutQueue(uint64_t page, SessionId session, const std::optional<uint32_t>& owner, std::string_view ns);
  Place PutTicket(SessionId session, const Ticket& ticket);
  Place PutQuota(uint32_t uid, std::string_view ns, uint64_t bytes);

  uint64_t NextPage() { return pages_.Next(); }
  uint64_t& word(record::Word which) { return file_->word(which); }

  // Thread-safe, without the lock. As DescriptorStore::Store; nothing is stored without a store. kHandled waits for the
  // holder: call it on a worker.
  Result<StoreGuard> Store(std::string name, std::span<const int> files,
                           DescriptorStore::Until until = DescriptorStore::Until::kQueued) const;
  // Of the store. REQUIRES: keeps(). Thread-safe, without the lock.
  DescriptorStore::Usage usage() const { return store_->usage(); }
  // Of the previous daemon.
  StoreGuard Has(std::string name) const { return {*store_, std::move(name)}; }

 private:
  std::unique_ptr<RecordFile> file_;
  DescriptorStore* store_ = nullptr;
  Counter pages_;
};

// The names of stored descriptors.
std::string StoredName(char letter, uint64_t number);
inline constexpr char kStoredArena = 'a';
inline constexpr char kStoredCatalogue = 'c';
inline constexpr char kStoredDirectChannel = 'd';  // the files of DirectChannel::Stored
inline constexpr char kStoredDeviceNode = 'g';     // by its number, /dev/nvidia0
inline constexpr char kStoredHazardPage = 'h';
inline constexpr char kStoredJournal = 'j';
inline constexpr char kStoredLifeline = 'l';
inline constexpr char kStoredQueue = 'q';  // two entries: requests and completions

}  // namespace arraybridge::daemon
