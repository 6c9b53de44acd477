// SPDX-License-Identifier: Apache-2.0
// The file in which other processes find this process's events, and the threads that run the work that they wait for.
#include <cstdio>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/simulated_cuda/event.h"
#include "tests/simulated_cuda/process.h"
#include "tests/simulated_cuda/violation.h"

namespace arraybridge::simulated {
namespace {

// Removes files of processes that were killed.
void RemoveOrphans(const std::string& directory) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    if (!entry.path().filename().string().starts_with("events.")) continue;
    const UniqueFd file(open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
    if (file.valid() && flock(file.get(), LOCK_EX | LOCK_NB) == 0) unlink(entry.path().c_str());
  }
}

}  // namespace

std::string EventFile::PathOf(int32_t pid, uint64_t name) {
  return Process::Get().config.directory + "/events." + std::to_string(pid) + "." + std::to_string(name);
}

void EventFile::Make() {
  RemoveOrphans(Process::Get().config.directory);
  name_ = Nonce();
  // The file is locked before it gets its name; otherwise another process might treat it as an orphan.
  const std::string path = PathOf(getpid(), name_);
  const std::string unlocked = Process::Get().config.directory + "/making." + std::to_string(name_);
  file_.reset(open(unlocked.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file_.valid() || ftruncate(file_.get(), sizeof(EventDoor)) != 0 || flock(file_.get(), LOCK_EX) != 0 ||
      rename(unlocked.c_str(), path.c_str()) != 0) {
    Violation("EventFile", "the configured directory cannot hold events", 0);
  }
  void* mapping = mmap(nullptr, sizeof(EventDoor), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (mapping == MAP_FAILED) Violation("EventFile", "no memory", 0);
  door_ = static_cast<EventDoor*>(mapping);
  door_->magic = kMagic;
  door_->pid = getpid();
  std::thread([this] { Serve(); }).detach();
}

bool EventFile::Publish(const std::shared_ptr<Event>& event) {
  if (event->door != nullptr) return true;
  if (door_ == nullptr) Make();
  for (uint32_t tried = 0; tried < kEventsMax; ++tried) {
    const uint32_t number = next_++ % kEventsMax;
    EventSlot& slot = door_->slots[number];
    // A process may still wait for a record of a destroyed event.
    if (slot.alive != 0 || slot.done < slot.recorded || serving_[number]) continue;
    event->door = door_;
    event->slot_number = number;
    event->nonce = Nonce();
    slot.nonce = 0;
    slot.wanted = 0;
    slot.recorded = event->recorded;
    slot.done = event->done;
    slot.alive = 1;
    slot.nonce = event->nonce;
    published_[number] = event;
    return true;
  }
  return false;
}

// Uses one thread for each requested slot, so that work that waits for another process does not block other work.
void EventFile::ServeSlot(uint32_t number) {
  std::thread([this, number] {
    Lock lock(Process::Get().mutex);
    const std::shared_ptr<Event> event = published_[number];
    while (event->slot()->wanted > event->done && Process::Get().sticky == cuda::CUDA_SUCCESS) {
      const uint64_t before = event->done;
      if (Complete(lock, event, event->slot()->wanted) != cuda::CUDA_SUCCESS || event->done == before) break;
    }
    serving_[number] = false;
  }).detach();
}

void EventFile::Serve() {
  for (;;) {
    const uint32_t seen = door_->bell;
    {
      const Lock lock(Process::Get().mutex);
      for (const auto& [number, event] : published_) {
        if (event->slot()->wanted <= event->done || serving_[number]) continue;
        serving_[number] = true;
        ServeSlot(number);
      }
    }
    syscall(SYS_futex, &door_->bell, FUTEX_WAIT, seen, nullptr, nullptr, 0);
  }
}

void EventFile::Remove() {
  if (door_ != nullptr) unlink(PathOf(getpid(), name_).c_str());
}

}  // namespace arraybridge::simulated
