// What a session writes instead of a frame: entries of its publish ring, and one request at a time in its mailbox. The
// loop looks there by itself from the moment that the session has said something until nobody says anything for
// server.spin_us; then the session wakes it, by a frame.
#include <algorithm>
#include <utility>

#include "daemon/service/local_door.h"
#include "proto/boundary/pause.h"

namespace arraybridge {
namespace {

constexpr uint64_t kEntriesPerTurnMax = 64;  // of one publish ring
constexpr size_t kMailboxesMax = 32;         // that the loop looks into at a time; the others ask by their sockets
constexpr int kQuietTurnsMax = 1024;         // of the loop; then another one may have its place
constexpr int kPauses = 32;                  // about a microsecond

bool Stands(const Lifeline& line) {
  return (line.ring && line.ring->ring->pending()) || (line.mailbox && line.mailbox->pending());
}

void Wake(const Lifeline& line) {
  if (line.ring) line.ring->ring->Wake();
  if (line.mailbox && !line.rests) line.mailbox->Wake();
}

Status NoMailbox() { return NotFound("the session has no mailbox").Because("NO_MAILBOX"); }

}  // namespace

Result<UniqueFd> LocalDoor::OpenMailbox(const LifelinePointer& line) {
  if (config_.spin.count() == 0) {
    return FailedPrecondition("the broker looks into no mailbox (server.spin_us 0)").Because("NO_MAILBOX");
  }
  if (line->mailbox) {
    return FailedPrecondition("session ", Number(*line->session), " has a mailbox already").Because("MAILBOX_TAKEN");
  }
  auto made = verbs_.MakeMailbox(*line->session);
  if (!made.ok()) return made.status();
  auto descriptor = (*made)->ExportRequests();
  if (descriptor.ok()) line->mailbox = *std::move(made);
  return descriptor;
}

Result<UniqueFd> LocalDoor::ExportAnswers(const LifelinePointer& line) {
  return line->mailbox ? line->mailbox->ExportAnswers() : NoMailbox();
}

Result<Answer<v1::MappedResponse>> LocalDoor::MailboxMapped(const LifelinePointer& line) {
  if (!line->mailbox) return NoMailbox();
  AB_RETURN_IF_ERROR(line->mailbox->Seal());
  if (line->watched) line->mailbox->Wake();
  return Answer<v1::MappedResponse>{};
}

void LocalDoor::Knocked(const LifelinePointer& line, const Frame& frame) {
  Watch(line);
  if ((frame.header.flags & kFrameNoReply) != 0) return Count(frame.header, Code::kOk);
  Refuse(line, frame.header, InvalidArgument("Ring is never answered: it is sent as a frame that wants no answer"));
}

// Also who is watched is woken: it may have got its mailbox since, or have rested.
void LocalDoor::Watch(const LifelinePointer& line) {
  if (!line->ring && !line->mailbox) return;
  line->quiet_turns = 0;
  Wake(*line);
  if (!std::exchange(line->watched, true)) watched_.push_back(line);
}

void LocalDoor::WatchMailbox(const LifelinePointer& line, uint16_t flags) {
  if (!line->mailbox) return;
  line->rests = (flags & kFrameMailboxRests) != 0;
  if (!line->rests && (line->watched || watched_.size() < kMailboxesMax)) Watch(line);
}

bool LocalDoor::LooksAgain() const {
  return has_several_cpus_ ||
         std::ranges::any_of(watched_, [](const auto& line) { return line->mailbox && !line->rests; });
}

bool LocalDoor::SomethingStands() const {
  return std::ranges::any_of(watched_, [](const auto& line) { return Stands(*line); });
}

bool LocalDoor::StandsSoon() const {
  for (int i = 0; has_several_cpus_ && i < kPauses; ++i) {
    if (SomethingStands()) return true;
    Pause();
  }
  return false;
}

bool LocalDoor::ServeWatched() {
  std::erase_if(watched_, [](const auto& line) { return !line->open(); });
  bool any = false;
  const auto end = Clock::now() + kTurn;
  // Who is served may end, but nobody comes.
  for (size_t i = 0; i < watched_.size(); ++i) {
    if (any && Clock::now() >= end) break;
    if (++next_watched_ >= watched_.size()) next_watched_ = 0;
    const LifelinePointer& line = watched_[next_watched_];
    if (!Stands(*line)) {
      ++line->quiet_turns;
      continue;
    }
    line->quiet_turns = 0;
    any = true;
    if (line->ring && line->ring->ring->pending()) verbs_.DrainRing(*line->ring, kEntriesPerTurnMax);
    if (line->mailbox && line->mailbox->pending()) ServeMailbox(line);
  }
  std::erase_if(watched_, [&](const auto& line) { return line->quiet_turns > kQuietTurnsMax && LetSleep(line); });
  return any;
}

void LocalDoor::ServeMailbox(const LifelinePointer& line) {
  begun_ = Clock::now();
  Frame frame;
  const auto taken = line->TakeFromMailbox(buffer_, &frame);
  if (!taken.ok()) return Violation(line, frame.header, taken.status());
  if (*taken) return Serve(line, frame);
  if (const auto cause = line->cut()) End(line, *cause);
}

bool LocalDoor::LetSleep(const LifelinePointer& line) {
  const bool ring_sleeps = !line->ring || line->ring->ring->Sleep();
  const bool mailbox_sleeps = !line->mailbox || line->mailbox->Sleep();
  line->watched = !ring_sleeps || !mailbox_sleeps;
  if (line->watched) Wake(*line);
  return !line->watched;
}

bool LocalDoor::FallAsleep() {
  std::erase_if(watched_, [&](const auto& line) { return LetSleep(line); });
  return watched_.empty();
}

}  // namespace arraybridge
