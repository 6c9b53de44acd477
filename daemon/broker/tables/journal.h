// SPDX-License-Identifier: Apache-2.0
// The Journal is what the next daemon needs if this one is killed now: a record of each arena, share, session, lease
// and page (records.proto), and the descriptors of their memory in the DescriptorStore. The tables of the broker call
// it with each change; there is no other way to save state. Recovery reads it.
//
// Without a DescriptorStore nothing is written.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
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
struct ChannelEnd;
struct DirectChannelRecord;
struct RangeOfArena;
struct Session;
struct Share;
struct Ticket;

namespace record {

enum Kind : uint8_t {
  kArena = 1,
  kShare,
  kSession,
  kLease,
  kCatalogue,
  kHazardPage,
  kQueue,
  kQuota,
  kReturned,
  kChannel,
  kChannelEnd,
  kDirectChannel,
  kTicket
};

// The kind of the one record that an object has.
constexpr Kind KindOf(const Arena&) { return kArena; }
constexpr Kind KindOf(const Share&) { return kShare; }
constexpr Kind KindOf(const Session&) { return kSession; }
constexpr Kind KindOf(const Channel&) { return kChannel; }
constexpr Kind KindOf(const ChannelEnd&) { return kChannelEnd; }
constexpr Kind KindOf(const DirectChannel&) { return kDirectChannel; }

// The words of the journal.
enum Word : size_t {
  kLives,  // daemons that have used this journal
  kBegan,  // the start of the first one, wall clock in seconds
  kBrokerIdLow,
  kBrokerIdHigh,
  kLastShare,
  kLastGeneration,
  kLastArena,
  kLastSession,
  kLastLease,
  kLastChannel,
  kLastChannelEnd,
  kLastDirectChannel,
  kLastPage,    // numbers in the names of stored pages
  kLostShares,  // of all lives
};

}  // namespace record

// The records of objects. Texts are views of the object's.
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

  // Writes the record of an object anew, as RecordOf(object, with...) says.
  template <class Object, class... With>
  void Put(Object& object, const With&... with) {
    if (!keeps()) return;
    const auto its = RecordOf(object, with...);
    object.record = Write(object.record, KindOf(its), its);
  }
  template <class Object>
  void Erase(Object& object) {
    Erase(std::exchange(object.record, 0));
  }
  // Writes a record whose place the caller keeps; 0 if nothing is written.
  template <class Message>
  Place Add(record::Kind kind, const Message& message) {
    return keeps() ? Write(0, kind, message) : 0;
  }
  void Erase(Place record);

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
  template <class Message>
  Place Write(Place place, record::Kind kind, const Message& message) {
    content_.clear();
    wire::AppendBackwards(&content_, [&](auto& out) { record::Write(out, message); });
    return file_->Replace(place, kind, content_);
  }

  std::unique_ptr<RecordFile> file_;
  DescriptorStore* store_ = nullptr;
  Counter pages_;
  std::string content_;  // of the last record
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
