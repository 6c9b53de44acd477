#include "daemon/memory/ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "daemon/memory/memfd.h"

namespace arraybridge {
namespace {

struct Mapped {
  UniqueFd file;
  void* base = nullptr;
};

// Memory for all of it is there, or it is refused: a first touch without would be a SIGBUS.
Result<Mapped> MakePages(uint64_t bytes, const char* name, int protection) {
  auto file = CreateMemfd(bytes, name);
  if (!file.ok()) return file.status();
  if (::fallocate(file->get(), 0, 0, static_cast<off_t>(bytes)) != 0) {
    return ResourceExhausted("no memory for a publish ring: ", std::strerror(errno)).Because("SYSTEM_MEMORY");
  }
  void* const base = ::mmap(nullptr, bytes, protection, MAP_SHARED, file->get(), 0);
  if (base == MAP_FAILED) {
    return ResourceExhausted("mapping a publish ring: ", std::strerror(errno)).Because("SYSTEM_MEMORY");
  }
  std::ignore = ::mlock(base, bytes);  // spares a fault where memory is short
  return Mapped{*std::move(file), base};
}

void Put(ring::Outcome& to, const Status& status) {
  to.code = static_cast<uint32_t>(status.code());
  to.reason = {};
  std::copy_n(status.reason().begin(), std::min(status.reason().size(), to.reason.size()), to.reason.begin());
}

}  // namespace

Result<std::unique_ptr<PublishRing>> PublishRing::Create() {
  auto entries = MakePages(sizeof(ring::Page), "arraybridge-ring", PROT_READ);
  if (!entries.ok()) return entries.status();
  auto bell = MakePages(sizeof(ring::Bell), "arraybridge-bell", PROT_READ | PROT_WRITE);
  if (!bell.ok()) return ::munmap(entries->base, sizeof(ring::Page)), bell.status();
  const int file = entries->file.get();
  std::unique_ptr<PublishRing> made(new PublishRing(std::move(entries->file), std::move(bell->file),
                                                    *static_cast<const ring::Page*>(entries->base),
                                                    *static_cast<ring::Bell*>(bell->base)));
  const uint32_t version = ring::kVersion;
  if (::pwrite(file, &version, sizeof version, offsetof(ring::Page, version)) != sizeof version) {
    return Internal("a publish ring cannot be written: ", std::strerror(errno));
  }
  made->bell_.version = version;
  made->bell_.asleep = made->sleeps_;
  // Only this mapping can ever write it, whoever gets hold of a descriptor.
  const int error = AddMemfdSeals(made->bell_file_.get(), F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
  if (error != 0) return Internal("a Bell cannot be sealed: ", std::strerror(error));
  return made;
}

PublishRing::PublishRing(UniqueFd entries, UniqueFd bell_file, const ring::Page& page, ring::Bell& bell)
    : entries_(std::move(entries)), bell_file_(std::move(bell_file)), page_(page), bell_(bell) {}

PublishRing::~PublishRing() {
  ::munmap(const_cast<ring::Page*>(&page_), sizeof(ring::Page));
  ::munmap(&bell_, sizeof(ring::Bell));
}

Result<UniqueFd> PublishRing::ExportEntries() const {
  const MutexLock lock(mutex_);
  if (!entries_.valid()) return FailedPrecondition("this publish ring is mapped already");
  return ReopenMemfd(entries_.get(), O_RDWR | O_NONBLOCK);
}

Result<UniqueFd> PublishRing::ExportBell() const { return ReopenMemfd(bell_file_.get(), O_RDONLY | O_NONBLOCK); }

Status PublishRing::Seal() {
  const MutexLock lock(mutex_);
  if (!entries_.valid()) return Ok();
  const int error = AddMemfdSeals(entries_.get(), F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
  if (error != 0) return Internal("a publish ring cannot be sealed: ", std::strerror(error));
  // What was punched out before the seal must not be missing when it is read: that would be a SIGBUS.
  if (::fallocate(entries_.get(), 0, 0, sizeof(ring::Page)) != 0) {
    return ResourceExhausted("no memory for a publish ring: ", std::strerror(errno)).Because("SYSTEM_MEMORY");
  }
  entries_.reset();
  takes_.store(true, std::memory_order_release);
  return Ok();
}

bool PublishRing::pending() const {
  return takes_.load(std::memory_order_acquire) &&
         Load(page_.head, std::memory_order_acquire) != tail_.load(std::memory_order_relaxed);
}

// The lock is held while entries are published: who asks for a name that another thread has in its hands right now has
// to wait until it is there. Nothing of that sleeps: no seal, no backend, no answer.
Result<uint64_t> PublishRing::Drain(uint64_t most, const Take& take) {
  const MutexLock lock(mutex_);
  if (!takes_.load(std::memory_order_relaxed)) return uint64_t{0};
  const auto nonsense = [&](std::string_view what, uint64_t number) -> Status {
    takes_.store(false, std::memory_order_release);
    return InvalidArgument("the publish ring has ", what, " (", number, ")");
  };
  uint64_t tail = tail_.load(std::memory_order_relaxed);
  const uint64_t there = Load(page_.head, std::memory_order_acquire) - tail;
  if (there > ring::kEntries) return nonsense("a head too far ahead", there);
  const uint64_t count = std::min(there, most);
  for (uint64_t i = 0; i < count; ++i, ++tail) {
    ring::Message copy;
    const auto message = ring::Read(page_.entries[tail % ring::kEntries], copy);
    if (!message) return nonsense("an entry that is too long", tail);
    const auto done = take(*message);
    if (!done) return nonsense("an entry that is no request", tail);
    Put(bell_.outcomes[tail % ring::kEntries], *done);
    tail_.store(tail + 1, std::memory_order_relaxed);
    Store(bell_.tail, tail + 1, std::memory_order_release);
  }
  return count;
}

bool PublishRing::Sleep() {
  return ring::FallAsleep(bell_, ++sleeps_, page_, tail_.load(std::memory_order_relaxed)) ||
         !takes_.load(std::memory_order_relaxed);
}

void PublishRing::Wake() { Store(bell_.asleep, 0, std::memory_order_relaxed); }

}  // namespace arraybridge
