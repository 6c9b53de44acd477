#include "daemon/memory/direct_channel.h"

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

constexpr std::string_view kWhat = "a direct channel";
constexpr uint64_t kControlBytes = 4096;

Result<DirectChannel::Doorbell> MakeDoorbell() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return ResourceExhausted("no descriptor left for a direct channel: ", std::strerror(errno)).Because("SYSTEM_MEMORY");
  }
  return DirectChannel::Doorbell{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void Ring(const DirectChannel::Doorbell& doorbell) {
  const char byte = 1;
  static_cast<void>(!::write(doorbell.rung.get(), &byte, 1));  // full: rung often enough
}

}  // namespace

Result<std::unique_ptr<DirectChannel>> DirectChannel::Create(uint64_t capacity, uint64_t number) {
  auto sent = SharedPages::Create(direct_channel::BytesOfProducerPage(capacity), PROT_READ, "arraybridge-direct-sent", kWhat);
  if (!sent.ok()) return sent.status();
  auto taken = SharedPages::Create(sizeof(direct_channel::ConsumerPage), PROT_READ, "arraybridge-direct-taken", kWhat);
  if (!taken.ok()) return taken.status();
  auto control = SharedPages::Create(kControlBytes, PROT_READ | PROT_WRITE, "arraybridge-direct-control", kWhat);
  if (!control.ok()) return control.status();
  auto& words = *static_cast<direct_channel::ControlBlock*>((*control)->base());
  words.version = direct_channel::kVersion;
  words.slots = direct_channel::kSlots;
  words.capacity = capacity;
  words.number = number;
  // Only this mapping can ever write it, whoever gets hold of a descriptor.
  AB_RETURN_IF_ERROR((*control)->Seal());
  auto senders = MakeDoorbell();
  if (!senders.ok()) return senders.status();
  auto receivers = MakeDoorbell();
  if (!receivers.ok()) return receivers.status();
  return std::unique_ptr<DirectChannel>(
      new DirectChannel(*std::move(sent), *std::move(taken), *std::move(control), *std::move(senders), *std::move(receivers)));
}

DirectChannel::DirectChannel(std::unique_ptr<SharedPages> sent, std::unique_ptr<SharedPages> taken, std::unique_ptr<SharedPages> control,
           Doorbell producer_doorbell, Doorbell consumer_doorbell)
    : sent_(std::move(sent)),
      taken_(std::move(taken)),
      control_pages_(std::move(control)),
      sent_page_(*static_cast<const direct_channel::ProducerPage*>(sent_->base())),
      taken_page_(*static_cast<const direct_channel::ConsumerPage*>(taken_->base())),
      control_(*static_cast<direct_channel::ControlBlock*>(control_pages_->base())),
      capacity_(control_.capacity),
      producer_doorbell_(std::move(producer_doorbell)),
      consumer_doorbell_(std::move(consumer_doorbell)) {}

Result<UniqueFd> DirectChannel::Export(DirectEnd side, DirectPart part) const {
  const MutexLock lock(mutex_);
  if (ended_) return FailedPrecondition("this direct channel has ended").Because("NO_DIRECT_CHANNEL");
  const bool sends = side == DirectEnd::kProducer;
  const SharedPages& own = sends ? *sent_ : *taken_;
  const SharedPages& other = sends ? *taken_ : *sent_;
  switch (part) {
    case DirectPart::kOwn:
      return own.Export(true);
    case DirectPart::kOther:
      return other.Export(false);
    case DirectPart::kSign:
      return control_pages_->Export(false);
    case DirectPart::kBell:
      return ReopenMemfd((sends ? producer_doorbell_ : consumer_doorbell_).heard.get(), O_RDONLY | O_NONBLOCK);
    case DirectPart::kOtherBell:
      break;
  }
  // For reading too: a pipe that nobody reads any more would end the process that writes to it.
  return ReopenMemfd((sends ? consumer_doorbell_ : producer_doorbell_).rung.get(), O_RDWR | O_NONBLOCK);
}

Status DirectChannel::Seal(DirectEnd side) {
  const MutexLock lock(mutex_);
  if (ended_) return FailedPrecondition("this direct channel has ended").Because("NO_DIRECT_CHANNEL");
  const bool sends = side == DirectEnd::kProducer;
  AB_RETURN_IF_ERROR((sends ? *sent_ : *taken_).Seal());
  seals_.fetch_or(sends ? 1 : 2, std::memory_order_release);
  return Ok();
}

void DirectChannel::Open(uint64_t calls) {
  Store(control_.calls, calls, std::memory_order_relaxed);
  Store(control_.opened, 1, std::memory_order_release);
}

void DirectChannel::AddCall() {
  Store(control_.calls, Load(control_.calls, std::memory_order_relaxed) + 1, std::memory_order_release);
  ThreadFence(std::memory_order_seq_cst);
  if (Load(taken_page_.asleep, std::memory_order_relaxed) != 0) Ring(consumer_doorbell_);
}

uint64_t DirectChannel::standing() const {
  if (!sealed()) return 0;
  const uint64_t tail = Load(taken_page_.tail, std::memory_order_acquire);
  const uint64_t head = Load(sent_page_.head, std::memory_order_acquire);
  return direct_channel::CanBe(head, tail, capacity_) ? head - tail : 0;
}

void DirectChannel::Revoke(const Take& take, const Ended& ended) {
  const MutexLock lock(mutex_);
  if (ended_) return;
  direct_channel::Revoke(control_);
  uint64_t head = 0;
  uint64_t tail = 0;
  ended(!sealed() || TakeAll(take, &head, &tail));
  ended_ = true;
  direct_channel::End(control_, head, tail);
  // Whoever sleeps wakes, and sees what the control block says.
  Ring(producer_doorbell_);
  Ring(consumer_doorbell_);
}

// The tail first: it never passes a head that was read later, but of a receiver that lies. One that takes back what it
// has said changes nothing for what its sender has seen. Of nonsense nothing is queued, so nothing of it is the
// broker's to return: the sender waits for the receiver, and for its end.
bool DirectChannel::TakeAll(const Take& take, uint64_t* head, uint64_t* tail) {
  *tail = Load(taken_page_.tail, std::memory_order_acquire);
  *tail = std::max(*tail, Load(sent_page_.seen, std::memory_order_acquire));
  *head = Load(sent_page_.head, std::memory_order_acquire);
  if (!direct_channel::CanBe(*head, *tail, capacity_)) return *tail = *head, false;
  bool complete = true;
  const direct_channel::Entry* const entries = direct_channel::EntriesOf(sent_page_);
  for (uint64_t at = *tail; at != *head; ++at) {
    const auto entry = direct_channel::Read(entries[at % capacity_]);
    complete = entry && take(*entry) && complete;
  }
  return complete;
}

void DirectChannel::MarkGone() { Store(control_.gone, 1, std::memory_order_release); }

}  // namespace arraybridge
