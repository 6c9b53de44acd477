#include "client/session.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "client/arena.h"
#include "client/capabilities.h"
#include "client/clock_offset.h"
#include "client/direct_consumer.h"
#include "proto/boundary/release_limit.h"
#include "proto/boundary/text.h"

namespace arraybridge {
namespace {

constexpr size_t kClientNameMax = 64;
constexpr size_t kNotesPerMessage = 64;
constexpr std::chrono::milliseconds kArenaIdle{5000};
constexpr uint64_t kOwnArenaBytes = 16ull << 20;
constexpr int kClockReadings = 3;

std::vector<uint64_t> TakeSome(std::vector<uint64_t>& from, size_t most) {
  const size_t count = std::min(from.size(), most);
  std::vector<uint64_t> some(from.end() - static_cast<std::ptrdiff_t>(count), from.end());
  from.resize(from.size() - count);
  return some;
}

void Append(codec::Release& to, codec::Release from) {
  to.leases.insert(to.leases.end(), from.leases.begin(), from.leases.end());
  to.arenas.insert(to.arenas.end(), from.arenas.begin(), from.arenas.end());
  to.unmapped.insert(to.unmapped.end(), from.unmapped.begin(), from.unmapped.end());
  to.holds = to.holds || from.holds;
  to.done.insert(to.done.end(), from.done.begin(), from.done.end());
  to.lost.insert(to.lost.end(), from.lost.begin(), from.lost.end());
  to.direct_channels.insert(to.direct_channels.end(), from.direct_channels.begin(), from.direct_channels.end());
  std::move(from.notes.begin(), from.notes.end(), std::back_inserter(to.notes));
  if (from.capabilities) to.capabilities = std::move(from.capabilities);
}

int64_t ClockMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::floor<std::chrono::milliseconds>(now).count();
}

// Reads the broker's clock again until the offset is close enough. A reading that fails is left out: the next request
// meets what it failed of.
ClockOffset ReadClock(Lifeline& lifeline, ClockOffset offset, Deadline deadline) {
  for (int more = kClockReadings - 1; more > 0 && !offset.is_close(); --more) {
    const int64_t asked_ms = ClockMs();
    const auto answer = lifeline.Call(Verb::kGetServerInfo, {}, deadline);
    const int64_t answered_ms = ClockMs();
    const auto server = answer.ok() ? codec::DecodeServer(answer->payload) : answer.status();
    if (!server.ok()) break;
    offset.Note(asked_ms, static_cast<int64_t>(server->clock_ms), answered_ms);
  }
  return offset;
}

codec::Release TakeMessage(codec::Release& release) {
  codec::Release message;
  size_t room = kReleaseNumbersMax;
  const auto take = [&room](std::vector<uint64_t>& from) {
    auto some = TakeSome(from, room);
    room -= some.size();
    return some;
  };
  message.done = take(release.done);
  message.lost = take(release.lost);
  message.leases = take(release.leases);
  message.arenas = take(release.arenas);
  message.unmapped = take(release.unmapped);
  message.direct_channels = take(release.direct_channels);
  message.holds = std::exchange(release.holds, false);
  message.capabilities = std::exchange(release.capabilities, std::nullopt);
  const auto some = release.notes.end() - static_cast<std::ptrdiff_t>(std::min(release.notes.size(), kNotesPerMessage));
  message.notes.assign(std::make_move_iterator(some), std::make_move_iterator(release.notes.end()));
  release.notes.erase(some, release.notes.end());
  return message;
}

}  // namespace

Result<std::shared_ptr<Session>> Session::Open(const Broker::Options& options, std::shared_ptr<Reaper> reaper,
                                               std::shared_ptr<const MapperTable> mappers,
                                               std::shared_ptr<LateErrors> late_errors,
                                               std::shared_ptr<Outcomes> outcomes, Deadline deadline) {
  auto lifeline = Lifeline::Connect(options.address, deadline, options.interrupted, options.spin);
  if (!lifeline.ok()) return lifeline.status();
  const codec::OpenSession hello{options.client.substr(0, kClientNameMax), static_cast<uint64_t>(::getpid()),
                                 CapabilitiesOf(*mappers), options.token};
  const int64_t asked_ms = ClockMs();
  auto answer = (*lifeline)->Call(Verb::kOpenSession, codec::Encode(hello), deadline);
  const int64_t answered_ms = ClockMs();
  if (!answer.ok()) return answer.status();
  auto opened = codec::DecodeOpened(answer->payload);
  if (!opened.ok()) return opened.status();
  if (opened->protocol != kProtocolVersion) {
    return FailedPrecondition("the broker speaks protocol ", opened->protocol, ", this client ", kProtocolVersion);
  }
  if (opened->server.clock_ms != 0) {
    ClockOffset offset;
    offset.Note(asked_ms, static_cast<int64_t>(opened->server.clock_ms), answered_ms);
    if (const auto ahead = ReadClock(**lifeline, offset, deadline).ahead()) (*lifeline)->StateDeadlines(*ahead);
  }
  (*lifeline)->ObserveLate([outcomes, nonce = (*lifeline)->nonce()](uint64_t request, Verb verb, const auto& late) {
    outcomes->Answered({nonce, request}, verb, late);
  });
  (*lifeline)->OfferQueue(options.ns);
  std::shared_ptr<Session> session(new Session(options, *std::move(lifeline), std::move(opened->server),
                                               std::move(reaper), std::move(mappers), std::move(late_errors),
                                               std::move(outcomes)));
  session->gpus_said_.store(!hello.capabilities.gpu_uuids.empty());
  return session;
}

Session::Session(const Broker::Options& options, std::shared_ptr<Lifeline> lifeline, codec::Server server,
                 std::shared_ptr<Reaper> reaper, std::shared_ptr<const MapperTable> mappers,
                 std::shared_ptr<LateErrors> late_errors, std::shared_ptr<Outcomes> outcomes)
    : reaper_(std::move(reaper)),
      mappers_(std::move(mappers)),
      server_(std::move(server)),
      outcomes_(std::move(outcomes)),
      arena_idle_(server_.limits.arena_idle_ms == 0 ? kArenaIdle
                                                    : std::chrono::milliseconds(server_.limits.arena_idle_ms)),
      written_(std::make_unique<WrittenArenas>(
          server_.limits.own_arena_bytes_min == 0 ? kOwnArenaBytes : server_.limits.own_arena_bytes_min)),
      read_({.arenas = options.read_arenas_max, .bytes = options.read_bytes_max}),
      holds_(options.ns, options.holds),
      unwaited_(options.ns, std::move(late_errors)),
      lifeline_(std::move(lifeline)) {}

Session::~Session() = default;

void Session::SayGpus() {
  if (gpus_said_.load(std::memory_order_relaxed)) return;
  codec::Capabilities capabilities = CapabilitiesOf(*mappers_);
  if (capabilities.gpu_uuids.empty() || gpus_said_.exchange(true)) return;
  codec::Release release;
  release.capabilities = std::move(capabilities);
  Post(std::move(release));
}

std::string_view Session::NoteFor(std::string_view note) const {
  if (note.size() > codec::kNoteBytesMax) return note;
  return FirstBytes(note, server_.limits.note_bytes_max);
}

Result<Answer> Session::Call(Verb verb, std::string_view payload, Deadline deadline, const Lifeline::Late& late) {
  auto answer = lifeline_->Call(verb, payload, deadline, late);
  if (lifeline_->memory_wanted()) reaper_->Nudge();
  return answer;
}

codec::Release Session::WithUnsent(codec::Release release) {
  MutexLock lock(mutex_);
  Append(unsent_, std::move(release));
  return std::exchange(unsent_, {});
}

// Ranges that leases free come back in the answer, once: who writes arenas must hear it.
Status Session::Say(const codec::Release& message) {
  const std::string payload = codec::Encode(message);
  const bool frees = (!message.leases.empty() || message.holds) && written_->count() > 0;
  if (!frees && !message.ends_fences()) return lifeline_->Post(Verb::kRelease, payload);
  codec::Release told;
  told.done = message.done;
  told.lost = message.lost;
  return lifeline_->Ask(Verb::kRelease, payload, [weak = weak_from_this(), told](const Result<Answer>& answer) {
    const auto self = weak.lock();
    if (self && answer.ok()) self->Hear(told, answer->payload);
  });
}

void Session::Hear(const codec::Release& told, std::string_view answer) {
  const auto released = codec::DecodeReleased(answer);
  if (!released.ok()) return;
  written_->Return(released->returned);
  if (told.ends_fences()) fences_.Answered(told, released->awaited, std::chrono::steady_clock::now());
}

Status Session::SyncFences(Deadline deadline) {
  if (!fences_.next_look()) return Ok();
  fences_.WaitUntil(deadline);
  codec::Release release;
  fences_.Tell(release, std::chrono::steady_clock::now());
  return release.empty() ? Ok() : Sync(std::move(release), deadline);
}

void Session::Post(codec::Release release) {
  release = WithUnsent(std::move(release));
  while (!release.empty()) {
    codec::Release message = TakeMessage(release);
    if (Say(message).ok()) continue;
    // With the connection everything is given back anyway.
    if (lifeline_->lost()) return;
    MutexLock lock(mutex_);
    Append(unsent_, std::move(message));
    Append(unsent_, std::move(release));
    return;
  }
}

Status Session::Sync(codec::Release release, Deadline deadline) {
  release = WithUnsent(std::move(release));
  do {
    const codec::Release message = TakeMessage(release);
    codec::Release told;
    told.done = message.done;
    told.lost = message.lost;
    const auto late = [weak = weak_from_this(), told](const Result<Answer>& answer) {
      const auto self = weak.lock();
      if (self && answer.ok()) self->Hear(told, answer->payload);
    };
    auto answer = lifeline_->Call(Verb::kRelease, codec::Encode(message), deadline, late);
    if (!answer.ok()) return answer.status();
    if (const auto released = codec::DecodeReleased(answer->payload); !released.ok()) return released.status();
    Hear(message, answer->payload);
  } while (!release.empty());
  return Ok();
}

void Session::PollDirectChannels() {
  codec::Release release;
  release.direct_channels = direct_producers_.Poll(*written_);
  if (!release.empty()) Post(std::move(release));
}

codec::Release Session::TakeUnused(std::chrono::steady_clock::time_point before) {
  codec::Release release;
  fences_.Tell(release, std::chrono::steady_clock::now());
  release.arenas = written_->TakeEmpty(before);
  release.unmapped = read_.TakeIdle(before);
  return release;
}

void Session::KeepUndrained(std::shared_ptr<const void> memory) {
  MutexLock lock(mutex_);
  undrained_.push_back(std::move(memory));
}

Moment::State SessionRemains::LookAtDevice() {
  if (moment_ == nullptr) {
    moment_ = Waited().Now();
    if (moment_ == nullptr) return Moment::State::kPassed;
    // One question serves all that joined the moment before it is asked.
    return Moment::State::kPending;
  }
  const auto state = moment_->Look();
  // After an error that ends all work on a device nothing is running there either.
  undrained_ = !state.ok() && state.status().code() != Code::kAborted;
  return state.ok() ? *state : Moment::State::kPassed;
}

Lease::Lease(std::shared_ptr<Session> of, std::shared_ptr<DirectConsumer> direct, uint64_t bit)
    : SessionRemains(std::move(of)), id(0), direct_(std::move(direct)), bit_(bit) {
  session->leases_.fetch_add(1, std::memory_order_relaxed);
}

Lease::~Lease() = default;

Lease::Lease(std::shared_ptr<Session> of, uint64_t lease) : SessionRemains(std::move(of)), id(lease) {
  session->leases_.fetch_add(1, std::memory_order_relaxed);
}

Lease::Lease(std::shared_ptr<Session> of, Hold held) : Lease(std::move(of), 0) { hold_ = std::move(held); }

bool Lease::EndAtOnce() noexcept {
  // Whatever dies with the session is no work for this thread.
  if ((!hold_ && !direct_) || private_mapping || Waits() || session.use_count() == 1) return false;
  if (direct_) {
    if (direct_.use_count() == 1) return false;
    direct_->Return(bit_);
    session->leases_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }
  withdrawn_ = hold_.End();
  if (withdrawn_) return false;
  session->leases_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void Lease::GiveBack(codec::Release& release) {
  session->leases_.fetch_sub(1, std::memory_order_relaxed);
  if (private_mapping) arena->ranges.GiveBack(offset, std::move(private_mapping));
  if (undrained()) return session->KeepUndrained(arena);
  arena.reset();
  if (direct_) return direct_->Return(bit_);
  if (id == 0) {
    if (hold_.End() || withdrawn_) release.holds = true;
    return;
  }
  release.leases.push_back(id);
  // Another thread may have mapped it since.
  if (unmapped && !session->read().Find(arena_id, arena_generation)) release.unmapped.push_back(arena_id);
}

PrivateRange::PrivateRange(std::shared_ptr<const Lease> of, std::unique_ptr<Mapping> range)
    : SessionRemains(of->session), lease_(std::move(of)), range_(std::move(range)) {}

PrivateRange::~PrivateRange() = default;

void PrivateRange::GiveBack(codec::Release& /*release*/) {
  lease_->arena->ranges.GiveBack(lease_->offset, std::move(range_));
}

void BurySessionRemains(Reaper::Batch batch) {
  // Mostly there is one session.
  std::sort(batch.begin(), batch.end(), [](const auto& one, const auto& other) {
    return static_cast<SessionRemains&>(*one).session < static_cast<SessionRemains&>(*other).session;
  });
  for (auto next = batch.begin(); next != batch.end();) {
    const std::shared_ptr<Session> session = static_cast<SessionRemains&>(**next).session;
    codec::Release release;
    for (; next != batch.end() && static_cast<SessionRemains&>(**next).session == session; ++next) {
      static_cast<SessionRemains&>(**next).GiveBack(release);
      next->reset();
    }
    session->Post(std::move(release));
  }
}

}  // namespace arraybridge
