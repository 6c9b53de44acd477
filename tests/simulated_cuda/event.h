// An Event is a place in streams that can be waited for: in this process, or, if it was opened from a handle, in
// another. Work waits where it was enqueued, so the process that recorded an event is the one that makes it true.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/boundary/driver_abi.h"
#include "proto/boundary/unique_fd.h"
#include "tests/simulated_cuda/shared_layout.h"
#include "tests/simulated_cuda/stream.h"

namespace arraybridge::simulated {

struct Event {
  ~Event();

  uint32_t flags = 0;
  const void* context = nullptr;
  std::thread::id maker;
  bool queried = false;   // since the latest record
  bool captured = false;  // that is one in a graph, and never happens
  uint64_t recorded = 0;
  uint64_t done = 0;
  std::map<uint64_t, std::vector<Point>> records;  // those that have not happened

  // Of events that crossed: where, and in whose file.
  bool imported = false;
  EventDoor* door = nullptr;
  uint32_t slot_number = 0;
  uint64_t nonce = 0;
  UniqueFd file;  // imported: the owner's, to see whether it lives

  EventSlot* slot() const { return door == nullptr ? nullptr : &door->slots[slot_number]; }
  // Number of the latest record; 0 for none.
  uint64_t Latest() const { return imported ? slot()->recorded.load() : recorded; }
  uint64_t Done() const { return imported ? slot()->done.load() : done; }
  // False once the process that made an imported event has destroyed it.
  bool OwnerKeepsIt() const { return !imported || (slot()->alive != 0 && slot()->nonce == nonce); }
  // True if the process that made an imported event is dead.
  bool OwnerIsDead() const;
  // Record number `record` has. REQUIRES: not imported.
  void Happened(uint64_t record);
};

// Makes record number `record` true, wherever that has to happen, and returns when it is. Drops the lock while another
// process does it: it may need work of ours meanwhile. 400 if that process died.
cuda::CUresult Complete(Lock& lock, const std::shared_ptr<Event>& event, uint64_t record);

// Puts a record of `event` at the ends of `points`' streams: it has happened when all of them came so far.
// REQUIRES: not imported.
void Record(const std::shared_ptr<Event>& event, const std::vector<std::shared_ptr<Stream>>& streams);

// The process's file of events, which other processes open.
class EventFile {
 public:
  // Gives the event a slot. False if there is none left.
  bool Publish(const std::shared_ptr<Event>& event);
  uint64_t name() const { return name_; }
  // Removes the file. The process is about to end.
  void Remove();

  static std::string PathOf(int32_t pid, uint64_t name);

 private:
  void Make();
  [[noreturn]] void Serve();
  void ServeSlot(uint32_t number);

  EventDoor* door_ = nullptr;
  UniqueFd file_;
  uint64_t name_ = 0;
  uint32_t next_ = 0;
  std::map<uint32_t, std::shared_ptr<Event>> published_;  // by slot, also destroyed ones that somebody waits for
  std::map<uint32_t, bool> serving_;
};

}  // namespace arraybridge::simulated
