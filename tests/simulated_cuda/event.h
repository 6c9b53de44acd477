// SPDX-License-Identifier: Apache-2.0
// An Event is a position in streams that can be waited for: in this process or, if it was opened from a handle, in
// another one. Work runs in the process that enqueued it, so the process that recorded an event completes it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/boundary/cuda/driver_abi.h"
#include "proto/boundary/unique_fd.h"
#include "tests/simulated_cuda/shared_layout.h"
#include "tests/simulated_cuda/stream.h"

namespace arraybridge::simulated {

struct Event {
  ~Event();

  uint32_t flags = 0;
  const void* context = nullptr;
  std::thread::id maker;
  uint32_t queries = 0;   // since the latest record
  bool captured = false;  // the latest record is in a graph and never completes
  uint64_t recorded = 0;
  uint64_t done = 0;
  std::map<uint64_t, std::vector<Point>> records;  // records that have not completed

  // For events of another process: the slot and its owner's file.
  bool imported = false;
  EventDoor* door = nullptr;
  uint32_t slot_number = 0;
  uint64_t nonce = 0;
  UniqueFd file;  // imported: the owner's file, which shows whether the owner lives

  EventSlot* slot() const { return door == nullptr ? nullptr : &door->slots[slot_number]; }
  // The number of the latest record; 0 if there is none.
  uint64_t Latest() const { return imported ? slot()->recorded.load() : recorded; }
  uint64_t Done() const { return imported ? slot()->done.load() : done; }
  // False after the owner of an imported event has destroyed it.
  bool OwnerKeepsIt() const { return !imported || (slot()->alive != 0 && slot()->nonce == nonce); }
  // True if the owner of an imported event is dead.
  bool OwnerIsDead() const;
  // Marks record number `record` as completed. REQUIRES: not imported.
  void Happened(uint64_t record);
};

// Completes record number `record`, in whichever process that must run, and returns when it is completed. Drops the
// lock while another process runs it, because that process may need work of this one. Returns 400 if that process died.
cuda::CUresult Complete(Lock& lock, const std::shared_ptr<Event>& event, uint64_t record);

// Puts a record of `event` at the ends of `streams`: it is completed when all of them have reached it. REQUIRES: not
// imported.
void Record(const std::shared_ptr<Event>& event, const std::vector<std::shared_ptr<Stream>>& streams);

// The process's file of events, which other processes open.
class EventFile {
 public:
  // Assigns a slot to the event. False if there is none left.
  bool Publish(const std::shared_ptr<Event>& event);
  uint64_t name() const { return name_; }
  // Removes the file when the process is about to end.
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
  std::map<uint32_t, std::shared_ptr<Event>> published_;  // by slot; includes destroyed events that a process waits for
  std::map<uint32_t, bool> serving_;
};

}  // namespace arraybridge::simulated
