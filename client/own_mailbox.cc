#include "client/own_mailbox.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "proto/boundary/pause.h"

namespace arraybridge {
namespace {

using std::chrono::steady_clock;

constexpr std::string_view kWhat = "a mailbox";
constexpr unsigned kPausesPerYield = 64;  // about two microseconds: longer than most answers take
constexpr unsigned kYieldsPerLook = 8;    // at the clock

}  // namespace

Result<std::unique_ptr<OwnMailbox>> OwnMailbox::Map(const UniqueFd& requests, const UniqueFd& answers) {
  auto page = OwnPages::Map(requests, sizeof(mailbox::Page), PROT_READ | PROT_WRITE, kWhat);
  if (!page.ok()) return page.status();
  auto its_answers = OwnPages::Map(answers, sizeof(mailbox::Answers), PROT_READ, kWhat);
  if (!its_answers.ok()) return its_answers.status();
  std::unique_ptr<OwnMailbox> mapped(new OwnMailbox(*std::move(page), *std::move(its_answers)));
  if (mapped->page_.version != mailbox::kVersion || mapped->answers_.version != mailbox::kVersion) {
    return FailedPrecondition("the mailbox has layout ", mapped->page_.version, ", this client writes ",
                              mailbox::kVersion);
  }
  return mapped;
}

OwnMailbox::OwnMailbox(OwnPages requests, OwnPages answers)
    : requests_(std::move(requests)),
      answers_pages_(std::move(answers)),
      page_(*static_cast<mailbox::Page*>(requests_.base())),
      answers_(*static_cast<const mailbox::Answers*>(answers_pages_.base())) {}

bool OwnMailbox::Take(uint64_t request, size_t message_bytes) {
  if (message_bytes > mailbox::kMessageBytesMax || Load(answers_.awake, std::memory_order_relaxed) == 0) return false;
  if (crowding_.rests()) return false;
  uint64_t by = taken_by_.load(std::memory_order_relaxed);
  if (by != 0 && ((by & kGivenUp) == 0 || !BrokerHas(by & ~kGivenUp))) return false;
  if (!taken_by_.compare_exchange_strong(by, request, std::memory_order_acquire)) return false;
  look_wanted_.store(false, std::memory_order_relaxed);
  return true;
}

uint16_t OwnMailbox::FlagsBySocket(bool in_order) {
  const bool in_vain = !in_order || Load(answers_.awake, std::memory_order_relaxed) == 0;
  if (in_vain && look_wanted_.load(std::memory_order_relaxed)) crowding_.NoteBad();
  look_wanted_.store(!crowding_.rests(), std::memory_order_relaxed);
  return crowding_.Rest() ? uint16_t{kFrameMailboxRests} : uint16_t{0};
}

bool OwnMailbox::Await(uint64_t request, const Patience& patience, FrameHeader* header, std::string* message) {
  const auto begun = steady_clock::now();
  const bool answered = Look(request, patience);
  const auto waited = steady_clock::now() - begun;
  // A broker that has not even read it while this thread looked is kept from it.
  crowding_.Waited(answered || BrokerHas(request) ? waited : Crowding::kShort + waited);
  const uint64_t bytes = answered ? mailbox::SizeOf(answers_.answer) : mailbox::kBySocket;
  if (bytes > mailbox::kMessageBytesMax) {
    taken_by_.store(request | kGivenUp, std::memory_order_release);
    return false;
  }
  *header = mailbox::HeadOf(answers_.answer);
  header->request = request;
  message->resize(bytes);
  mailbox::CopyMessage(answers_.answer, bytes, message->data());
  taken_by_.store(0, std::memory_order_release);
  return true;
}

bool OwnMailbox::Look(uint64_t request, const Patience& patience) const {
  std::optional<steady_clock::time_point> until;
  for (unsigned turn = 1;; ++turn) {
    for (unsigned i = 0; i < (patience.yields ? 1 : kPausesPerYield); ++i) {
      if (Load(page_.awaited, std::memory_order_acquire) != request) return true;
      if (!patience.yields) Pause();
    }
    ::sched_yield();
    if (patience.yields && turn % kYieldsPerLook != 0) continue;
    const auto now = steady_clock::now();
    if (!until) until = std::min(now + patience.spin, patience.deadline);
    if (now >= *until) return !mailbox::EndLook(page_, request);
  }
}

}  // namespace arraybridge
