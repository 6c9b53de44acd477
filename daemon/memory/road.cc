#include "daemon/memory/road.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/memory/memfd.h"

namespace arraybridge {
namespace {

constexpr std::string_view kWhat = "a road";
constexpr uint64_t kSignBytes = 4096;

Result<Road::Bell> MakeBell() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return ResourceExhausted("no descriptor left for a road: ", std::strerror(errno)).Because("SYSTEM_MEMORY");
  }
  return Road::Bell{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void Ring(const Road::Bell& bell) {
  const char byte = 1;
  static_cast<void>(!::write(bell.rung.get(), &byte, 1));  // full: rung often enough
}

}  // namespace

Result<std::unique_ptr<Road>> Road::Create(uint64_t capacity, uint64_t number) {
  auto sent = SharedPages::Create(road::BytesOfSent(capacity), PROT_READ, "arraybridge-road-sent", kWhat);
  if (!sent.ok()) return sent.status();
  auto taken = SharedPages::Create(sizeof(road::TakenPage), PROT_READ, "arraybridge-road-taken", kWhat);
  if (!taken.ok()) return taken.status();
  auto sign = SharedPages::Create(kSignBytes, PROT_READ | PROT_WRITE, "arraybridge-road-sign", kWhat);
  if (!sign.ok()) return sign.status();
  auto& words = *static_cast<road::Sign*>((*sign)->base());
  words.version = road::kVersion;
  words.slots = road::kSlots;
  words.capacity = capacity;
  words.number = number;
  // Only this mapping can ever write it, whoever gets hold of a descriptor.
  AB_RETURN_IF_ERROR((*sign)->Seal());
  auto senders = MakeBell();
  if (!senders.ok()) return senders.status();
  auto receivers = MakeBell();
  if (!receivers.ok()) return receivers.status();
  return std::unique_ptr<Road>(
      new Road(*std::move(sent), *std::move(taken), *std::move(sign), *std::move(senders), *std::move(receivers)));
}

Road::Road(std::unique_ptr<SharedPages> sent, std::unique_ptr<SharedPages> taken, std::unique_ptr<SharedPages> sign,
           Bell senders_bell, Bell receivers_bell)
    : sent_(std::move(sent)),
      taken_(std::move(taken)),
      sign_pages_(std::move(sign)),
      sent_page_(*static_cast<const road::SentPage*>(sent_->base())),
      taken_page_(*static_cast<const road::TakenPage*>(taken_->base())),
      sign_(*static_cast<road::Sign*>(sign_pages_->base())),
      capacity_(sign_.capacity),
      senders_bell_(std::move(senders_bell)),
      receivers_bell_(std::move(receivers_bell)) {}

Result<UniqueFd> Road::Export(RoadSide side, RoadPart part) const {
  const MutexLock lock(mutex_);
  if (ended_) return FailedPrecondition("this road has ended").Because("NO_ROAD");
  const bool sends = side == RoadSide::kSender;
  const SharedPages& own = sends ? *sent_ : *taken_;
  const SharedPages& other = sends ? *taken_ : *sent_;
  switch (part) {
    case RoadPart::kOwn:
      return own.Export(true);
    case RoadPart::kOther:
      return other.Export(false);
    case RoadPart::kSign:
      return sign_pages_->Export(false);
    case RoadPart::kBell:
      return ReopenMemfd((sends ? senders_bell_ : receivers_bell_).heard.get(), O_RDONLY | O_NONBLOCK);
    case RoadPart::kOtherBell:
      break;
  }
  // For reading too: a pipe that nobody reads any more would end the process that writes to it.
  return ReopenMemfd((sends ? receivers_bell_ : senders_bell_).rung.get(), O_RDWR | O_NONBLOCK);
}

Status Road::Seal(RoadSide side) {
  const MutexLock lock(mutex_);
  if (ended_) return FailedPrecondition("this road has ended").Because("NO_ROAD");
  const bool sends = side == RoadSide::kSender;
  AB_RETURN_IF_ERROR((sends ? *sent_ : *taken_).Seal());
  seals_.fetch_or(sends ? 1 : 2, std::memory_order_release);
  return Ok();
}

void Road::Open(uint64_t calls) {
  Store(sign_.calls, calls, std::memory_order_relaxed);
  Store(sign_.opened, 1, std::memory_order_release);
}

void Road::AddCall() {
  Store(sign_.calls, Load(sign_.calls, std::memory_order_relaxed) + 1, std::memory_order_release);
  ThreadFence(std::memory_order_seq_cst);
  if (Load(taken_page_.asleep, std::memory_order_relaxed) != 0) Ring(receivers_bell_);
}

uint64_t Road::standing() const {
  if (!sealed()) return 0;
  const uint64_t tail = Load(taken_page_.tail, std::memory_order_acquire);
  const uint64_t head = Load(sent_page_.head, std::memory_order_acquire);
  return road::CanBe(head, tail, capacity_) ? head - tail : 0;
}

void Road::Revoke(const Take& take, const Ended& ended) {
  const MutexLock lock(mutex_);
  if (ended_) return;
  road::Revoke(sign_);
  uint64_t head = 0;
  uint64_t tail = 0;
  ended(!sealed() || TakeAll(take, &head, &tail));
  ended_ = true;
  road::End(sign_, head, tail);
  // Whoever sleeps wakes, and sees what the Sign says.
  Ring(senders_bell_);
  Ring(receivers_bell_);
}

// The tail first: it never passes a head that was read later, but of a receiver that lies. One that takes back what it
// has said changes nothing for what its sender has seen. Of nonsense nothing is queued, so nothing of it is the
// broker's to return: the sender waits for the receiver, and for its end.
bool Road::TakeAll(const Take& take, uint64_t* head, uint64_t* tail) {
  *tail = Load(taken_page_.tail, std::memory_order_acquire);
  *tail = std::max(*tail, Load(sent_page_.seen, std::memory_order_acquire));
  *head = Load(sent_page_.head, std::memory_order_acquire);
  if (!road::CanBe(*head, *tail, capacity_)) return *tail = *head, false;
  bool complete = true;
  const road::Entry* const entries = road::EntriesOf(sent_page_);
  for (uint64_t at = *tail; at != *head; ++at) {
    const auto entry = road::Read(entries[at % capacity_]);
    complete = entry && take(*entry) && complete;
  }
  return complete;
}

void Road::MarkGone() { Store(sign_.gone, 1, std::memory_order_release); }

}  // namespace arraybridge
