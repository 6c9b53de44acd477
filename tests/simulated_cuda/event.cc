// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/event.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/simulated_cuda/process.h"

namespace arraybridge::simulated {

using cuda::CUresult;

namespace {

void Wake(std::atomic<uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0); }

// Asks the event's owner to run the work, and waits for it.
CUresult CompleteElsewhere(Lock& lock, const std::shared_ptr<Event>& event, uint64_t record) {
  EventSlot& slot = *event->slot();
  uint64_t wanted = slot.wanted;
  while (wanted < record && !slot.wanted.compare_exchange_weak(wanted, record)) {
  }
  ++event->door->bell;
  Wake(event->door->bell);
  lock.unlock();  // otherwise two processes that wait for each other would deadlock
  bool orphaned = false;
  for (;;) {
    const uint32_t seen = slot.word;
    // A slot is reused only after all its records have completed.
    if (slot.done >= record || slot.nonce != event->nonce) break;
    if (event->OwnerIsDead() && !Process::Get().config.dead_events_pend) {
      orphaned = slot.done < record;
      break;
    }
    const timespec look_again{.tv_sec = 0, .tv_nsec = 50'000'000};
    syscall(SYS_futex, &slot.word, FUTEX_WAIT, seen, &look_again, nullptr, 0);
  }
  lock.lock();
  if (!orphaned) return cuda::CUDA_SUCCESS;
  std::fprintf(stderr, "simulated_cuda: waited for an event whose process died\n");
  return cuda::CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

Event::~Event() {
  if (imported) munmap(door, sizeof(EventDoor));
}

bool Event::OwnerIsDead() const {
  if (flock(file.get(), LOCK_SH | LOCK_NB) != 0) return false;
  flock(file.get(), LOCK_UN);
  return true;
}

CUresult Complete(Lock& lock, const std::shared_ptr<Event>& event, uint64_t record) {
  if (event->imported) return CompleteElsewhere(lock, event, record);
  if (event->done >= record) return cuda::CUDA_SUCCESS;
  const auto found = event->records.find(record);
  if (found == event->records.end()) return cuda::CUDA_SUCCESS;
  const std::vector<Point> points = found->second;
  for (const Point& point : points) {
    const CUresult result = point.stream->Run(lock, point.position, Process::Get().changed);
    if (result != cuda::CUDA_SUCCESS) return result;
  }
  return cuda::CUDA_SUCCESS;
}

void Event::Happened(uint64_t record) {
  done = std::max(done, record);
  records.erase(record);
  if (EventSlot* const shared = slot()) {
    shared->done = done;
    ++shared->word;
    Wake(shared->word);
  }
}

void Record(const std::shared_ptr<Event>& event, const std::vector<std::shared_ptr<Stream>>& streams) {
  const uint64_t record = ++event->recorded;
  event->queries = 0;
  if (event->slot() != nullptr) event->slot()->recorded = record;
  if (streams.empty()) return event->Happened(record);
  const auto missing = std::make_shared<size_t>(streams.size());
  for (const auto& stream : streams) {
    Work work{.symbol = "record", .run = {}};
    work.run = [event, record, missing](Lock&) {
      if (--*missing != 0) return cuda::CUDA_SUCCESS;
      event->Happened(record);
      return cuda::CUDA_SUCCESS;
    };
    Process::Get().Enqueue(stream, std::move(work));
    event->records[record].push_back({stream, stream->tail()});
  }
}

}  // namespace arraybridge::simulated
