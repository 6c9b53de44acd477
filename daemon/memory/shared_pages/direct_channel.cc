// SPDX-License-Identifier: Apache-2.0
#include "daemon/memory/shared_pages/direct_channel.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/memory/host/memfd.h"

namespace arraybridge::daemon {
namespace {

constexpr std::string_view kDirectChannel = "a direct channel";
constexpr uint64_t kControlBytes = 4096;

Result<DirectChannel::Doorbell> MakeDoorbell() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return ResourceExhausted("no descriptor left for a direct channel: ", std::strerror(errno))
        .Because("SYSTEM_MEMORY");
  }
  return DirectChannel::Doorbell{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// The stored file that this one may be.
DirectChannel::Stored PartOf(int file) {
  static_assert(direct_channel::BytesOfProducerPage(1) > sizeof(direct_channel::ConsumerPage));
  struct stat is {};
  const bool read_only = (::fcntl(file, F_GETFL) & O_ACCMODE) == O_RDONLY;
  if (::fstat(file, &is) == 0 && S_ISFIFO(is.st_mode)) {
    return read_only ? DirectChannel::kWakesConsumer : DirectChannel::kWakesProducer;
  }
  if (!read_only) return DirectChannel::kControlBlock;
  const bool small = is.st_size == sizeof(direct_channel::ConsumerPage);
  return small ? DirectChannel::kConsumerPage : DirectChannel::kProducerPage;
}

Result<DirectChannel::Doorbell> AdoptDoorbell(int pipe) {
  AB_ASSIGN_OR_RETURN(auto read, ReopenMemfd(pipe, O_RDONLY | O_NONBLOCK));
  AB_ASSIGN_OR_RETURN(auto written, ReopenMemfd(pipe, O_WRONLY | O_NONBLOCK));
  return DirectChannel::Doorbell{std::move(read), std::move(written)};
}

void Ring(const DirectChannel::Doorbell& doorbell) {
  const char byte = 1;
  static_cast<void>(!::write(doorbell.written.get(), &byte, 1));  // a full pipe wakes its reader, too
}

}  // namespace

Result<std::unique_ptr<DirectChannel>> DirectChannel::Create(uint64_t capacity, uint64_t number, bool for_next_daemon) {
  AB_ASSIGN_OR_RETURN(auto producer, SharedPages::Create(direct_channel::BytesOfProducerPage(capacity), PROT_READ,
                                                         "arraybridge-direct-producer", kDirectChannel));
  AB_ASSIGN_OR_RETURN(auto consumer, SharedPages::Create(sizeof(direct_channel::ConsumerPage), PROT_READ,
                                                         "arraybridge-direct-consumer", kDirectChannel));
  auto control =
      SharedPages::Create(kControlBytes, PROT_READ | PROT_WRITE, "arraybridge-direct-control", kDirectChannel);
  if (!control.ok()) return control.status();
  auto& words = *static_cast<direct_channel::ControlBlock*>((*control)->base());
  words.version = direct_channel::kVersion;
  words.return_bits = direct_channel::kReturnBits;
  words.capacity = capacity;
  words.number = number;
  // After Seal only this mapping can ever write it, whichever process gets hold of a descriptor.
  AB_RETURN_IF_ERROR(for_next_daemon ? (*control)->SealForNextDaemon() : (*control)->Seal());
  AB_ASSIGN_OR_RETURN(auto producer_doorbell, MakeDoorbell());
  AB_ASSIGN_OR_RETURN(auto consumer_doorbell, MakeDoorbell());
  return std::unique_ptr<DirectChannel>(new DirectChannel(std::move(producer), std::move(consumer), *std::move(control),
                                                          std::move(producer_doorbell), std::move(consumer_doorbell)));
}

Result<std::unique_ptr<DirectChannel>> DirectChannel::Adopt(uint64_t capacity, uint64_t number,
                                                            std::chrono::steady_clock::time_point born,
                                                            std::vector<UniqueFd> stored) {
  if (capacity == 0 || capacity > direct_channel::kCapacityMax) {
    return FailedPrecondition("a stored direct channel has a capacity of ", capacity);
  }
  std::array<UniqueFd, kStored> files;
  for (UniqueFd& each : stored) {
    UniqueFd& place = files.at(PartOf(each.get()));
    if (place.valid()) return FailedPrecondition("two files of a stored direct channel are of one kind");
    place = std::move(each);
  }
  for (const UniqueFd& each : files) {
    if (!each.valid()) return FailedPrecondition("a stored direct channel has ", stored.size(), " files only");
  }
  AB_ASSIGN_OR_RETURN(auto producer,
                      SharedPages::Adopt(std::move(files[kProducerPage]), direct_channel::BytesOfProducerPage(capacity),
                                         PROT_READ, kDirectChannel));
  AB_ASSIGN_OR_RETURN(auto consumer,
                      SharedPages::Adopt(std::move(files[kConsumerPage]), sizeof(direct_channel::ConsumerPage),
                                         PROT_READ, kDirectChannel));
  auto control =
      SharedPages::Adopt(std::move(files[kControlBlock]), kControlBytes, PROT_READ | PROT_WRITE, kDirectChannel);
  if (!control.ok()) return control.status();
  const auto& words = *static_cast<const direct_channel::ControlBlock*>((*control)->base());
  if (words.version != direct_channel::kVersion || words.capacity != capacity || words.number != number) {
    return FailedPrecondition("a stored direct channel has another layout, or is another one");
  }
  AB_ASSIGN_OR_RETURN(auto producer_doorbell, AdoptDoorbell(files[kWakesProducer].get()));
  AB_ASSIGN_OR_RETURN(auto consumer_doorbell, AdoptDoorbell(files[kWakesConsumer].get()));
  const unsigned seals = (producer->sealed() ? 1 : 0) | (consumer->sealed() ? 2 : 0);
  std::unique_ptr<DirectChannel> adopted(new DirectChannel(std::move(producer), std::move(consumer),
                                                           *std::move(control), std::move(producer_doorbell),
                                                           std::move(consumer_doorbell), born));
  adopted->seals_.store(seals, std::memory_order_release);
  const MutexLock lock(adopted->mutex_);
  adopted->ended_ = adopted->revoked();
  return adopted;
}

DirectChannel::DirectChannel(std::unique_ptr<SharedPages> producer, std::unique_ptr<SharedPages> consumer,
                             std::unique_ptr<SharedPages> control, Doorbell producer_doorbell,
                             Doorbell consumer_doorbell, std::chrono::steady_clock::time_point born)
    : producer_pages_(std::move(producer)),
      consumer_pages_(std::move(consumer)),
      control_pages_(std::move(control)),
      producer_(*static_cast<const direct_channel::ProducerPage*>(producer_pages_->base())),
      consumer_(*static_cast<const direct_channel::ConsumerPage*>(consumer_pages_->base())),
      control_(*static_cast<direct_channel::ControlBlock*>(control_pages_->base())),
      capacity_(control_.capacity),
      born_(born),
      producer_doorbell_(std::move(producer_doorbell)),
      consumer_doorbell_(std::move(consumer_doorbell)) {}

Result<std::vector<UniqueFd>> DirectChannel::Export(DirectEnd side) const {
  const MutexLock lock(mutex_);
  if (ended_) return FailedPrecondition("this direct channel has ended").Because("NO_DIRECT_CHANNEL");
  const bool produces = side == DirectEnd::kProducer;
  const SharedPages& own = produces ? *producer_pages_ : *consumer_pages_;
  const SharedPages& other = produces ? *consumer_pages_ : *producer_pages_;
  const Doorbell& doorbell = produces ? producer_doorbell_ : consumer_doorbell_;
  const Doorbell& other_doorbell = produces ? consumer_doorbell_ : producer_doorbell_;
  std::array<Result<UniqueFd>, direct_channel::kFiles> opened{
      own.Export(true), other.Export(false), control_pages_->Export(false),
      ReopenMemfd(doorbell.read.get(), O_RDONLY | O_NONBLOCK),
      // For reading too: a write to a pipe that no process reads would end the writer.
      ReopenMemfd(other_doorbell.written.get(), O_RDWR | O_NONBLOCK)};
  std::vector<UniqueFd> files;
  for (auto& each : opened) {
    if (!each.ok()) return each.status();
    files.push_back(*std::move(each));
  }
  return files;
}

// One description of a pipe is enough: the next daemon reopens both of its ends.
Result<std::vector<UniqueFd>> DirectChannel::ExportForNextDaemon() const {
  const MutexLock lock(mutex_);
  std::array<Result<UniqueFd>, kStored> opened{producer_pages_->Export(false), consumer_pages_->Export(false),
                                               control_pages_->ExportWritable(),
                                               ReopenMemfd(producer_doorbell_.read.get(), O_RDWR | O_NONBLOCK),
                                               ReopenMemfd(consumer_doorbell_.read.get(), O_RDONLY | O_NONBLOCK)};
  std::vector<UniqueFd> files;
  for (auto& each : opened) {
    if (!each.ok()) return each.status();
    files.push_back(*std::move(each));
  }
  return files;
}

Status DirectChannel::Seal(DirectEnd side) {
  const MutexLock lock(mutex_);
  if (ended_) return FailedPrecondition("this direct channel has ended").Because("NO_DIRECT_CHANNEL");
  const bool produces = side == DirectEnd::kProducer;
  AB_RETURN_IF_ERROR((produces ? *producer_pages_ : *consumer_pages_).Seal());
  seals_.fetch_or(produces ? 1 : 2, std::memory_order_release);
  return Ok();
}

void DirectChannel::Open(uint64_t calls, uint64_t sequence, uint64_t stream) {
  control_.sequence = sequence;
  control_.stream = stream;
  Store(control_.calls, calls, std::memory_order_relaxed);
  Store(control_.opened, 1, std::memory_order_release);
}

void DirectChannel::RestoreCalls(uint64_t calls) {
  if (calls <= Load(control_.calls, std::memory_order_relaxed)) return;
  Store(control_.calls, calls, std::memory_order_release);
  if (spsc::SleepOf(consumer_.progress) != 0) Ring(consumer_doorbell_);
}

void DirectChannel::AddCall() {
  Store(control_.calls, Load(control_.calls, std::memory_order_relaxed) + 1, std::memory_order_release);
  if (spsc::SleepOf(consumer_.progress) != 0) Ring(consumer_doorbell_);
}

// Whether so many entries can have been sent, and of these so many taken: no end sends more than one in a nanosecond.
bool DirectChannel::CanBe(uint64_t head, uint64_t taken) const {
  const std::chrono::nanoseconds age = std::chrono::steady_clock::now() - born_;
  return taken <= head && head - taken <= capacity_ && head <= static_cast<uint64_t>(age.count());
}

DirectChannel::Counted DirectChannel::counted() const {
  if (!sealed()) return {};
  const uint64_t taken = Load(consumer_.progress.taken, std::memory_order_acquire);
  const uint64_t head = Load(producer_.progress.head, std::memory_order_acquire);
  return CanBe(head, taken) ? Counted{head, taken} : Counted{};
}

uint64_t DirectChannel::SequenceOf(uint64_t entry) const {
  return control_.sequence + entry + Load(control_.calls, std::memory_order_relaxed);
}

void DirectChannel::Revoke(const Take& take, const Ended& ended) {
  const MutexLock lock(mutex_);
  if (ended_) return;
  direct_channel::BeginRevoke(control_);
  uint64_t head = 0;
  uint64_t taken = 0;
  const bool complete = !sealed() || TakeAll(take, &head, &taken);
  ended(complete, complete ? taken : 0);
  ended_ = true;
  direct_channel::EndRevoke(control_);
  // An end that sleeps wakes, and reads the control block.
  Ring(producer_doorbell_);
  Ring(consumer_doorbell_);
}

// The counts are stored before the first entry is taken: if this daemon is killed, the next one takes the same entries,
// although the consumer may have moved since.
//
// With impossible counts no entry is queued, so no range is the broker's to return: the producer waits for the
// consumer, and for the end of its session.
bool DirectChannel::TakeAll(const Take& take, uint64_t* head, uint64_t* taken) {
  if (Load(control_.decided, std::memory_order_relaxed) == 0) {
    direct_channel::LoadCounts(producer_, consumer_, head, taken);
    const bool possible = CanBe(*head, *taken);
    direct_channel::Decide(control_, *head, possible ? *taken : *head, possible);
  }
  *head = Load(control_.counted, std::memory_order_relaxed);
  *taken = Load(control_.taken, std::memory_order_relaxed);
  bool complete = Load(control_.decided, std::memory_order_relaxed) == direct_channel::kPossible;
  const auto slots = direct_channel::SlotsOf(producer_, capacity_);
  direct_channel::Entry entry;
  for (uint64_t at = *taken; at != *head; ++at) {
    const bool whole = spsc::CopyEntry<direct_channel::Format>(slots, at, entry) != 0 &&
                       direct_channel::HeaderOf(entry).bit < direct_channel::kReturnBits;
    complete = whole && take(entry, at + 1) && complete;
  }
  return complete;
}

void DirectChannel::MarkGone() { Store(control_.gone, 1, std::memory_order_release); }

void DirectChannel::Keep(uint64_t bit, bool kept) { direct_channel::Keep(control_, bit, kept); }

}  // namespace arraybridge::daemon
