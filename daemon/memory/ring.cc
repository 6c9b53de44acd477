#include "daemon/memory/ring.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace arraybridge {
namespace {

constexpr std::string_view kWhat = "a publish ring";

void Put(ring::Outcome& to, const Status& status) {
  to.code = static_cast<uint32_t>(status.code());
  to.reason = {};
  std::copy_n(status.reason().begin(), std::min(status.reason().size(), to.reason.size()), to.reason.begin());
}

}  // namespace

Result<std::unique_ptr<PublishRing>> PublishRing::Create() {
  auto entries = SharedPages::Create(sizeof(ring::Page), PROT_READ, "arraybridge-ring", kWhat);
  if (!entries.ok()) return entries.status();
  auto bell = SharedPages::Create(sizeof(ring::Bell), PROT_READ | PROT_WRITE, "arraybridge-bell", kWhat);
  if (!bell.ok()) return bell.status();
  const uint32_t version = ring::kVersion;
  AB_RETURN_IF_ERROR((*entries)->Write(offsetof(ring::Page, version), &version, sizeof version));
  std::unique_ptr<PublishRing> made(new PublishRing(*std::move(entries), *std::move(bell)));
  made->bell_.version = version;
  made->bell_.asleep = made->sleeps_;
  // Only this mapping can ever write it, whoever gets hold of a descriptor.
  AB_RETURN_IF_ERROR(made->bell_pages_->Seal());
  return made;
}

PublishRing::PublishRing(std::unique_ptr<SharedPages> entries, std::unique_ptr<SharedPages> bell)
    : entries_(std::move(entries)),
      bell_pages_(std::move(bell)),
      page_(*static_cast<const ring::Page*>(entries_->base())),
      bell_(*static_cast<ring::Bell*>(bell_pages_->base())) {}

Result<UniqueFd> PublishRing::ExportEntries() const {
  const MutexLock lock(mutex_);
  return entries_->Export(true);
}

Result<UniqueFd> PublishRing::ExportBell() const { return bell_pages_->Export(false); }

Status PublishRing::Seal() {
  const MutexLock lock(mutex_);
  if (entries_->sealed()) return Ok();
  AB_RETURN_IF_ERROR(entries_->Seal());
  entries_->CloseFile();
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
