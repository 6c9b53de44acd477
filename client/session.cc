#include "client/session.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <vector>

#include "client/arena.h"
#include "client/capabilities.h"

namespace arraybridge {
namespace {

constexpr size_t kClientNameMax = 64;
constexpr size_t kNumbersPerMessage = 4096;  // ten bytes each at most: fits into a frame
constexpr std::chrono::milliseconds kArenaIdle{5000};
constexpr uint64_t kOwnArenaBytes = 16ull << 20;

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
}

codec::Release TakeMessage(codec::Release& release) {
  codec::Release message;
  message.leases = TakeSome(release.leases, kNumbersPerMessage);
  message.arenas = TakeSome(release.arenas, kNumbersPerMessage - message.leases.size());
  message.unmapped = TakeSome(release.unmapped, kNumbersPerMessage - message.leases.size() - message.arenas.size());
  return message;
}

}  // namespace

Result<std::shared_ptr<Session>> Session::Open(const Broker::Options& options, std::shared_ptr<Reaper> reaper,
                                               std::shared_ptr<const MapperTable> mappers, Deadline deadline) {
  auto lifeline = Lifeline::Connect(options.address, deadline, options.interrupted);
  if (!lifeline.ok()) return lifeline.status();
  const codec::OpenSession hello{options.client.substr(0, kClientNameMax), static_cast<uint64_t>(::getpid()),
                                 CapabilitiesOf(*mappers)};
  auto answer = (*lifeline)->Call(Verb::kOpenSession, codec::Encode(hello), deadline);
  if (!answer.ok()) return answer.status();
  auto opened = codec::DecodeOpened(answer->payload);
  if (!opened.ok()) return opened.status();
  if (opened->protocol != kProtocolVersion) {
    return FailedPrecondition("the broker speaks protocol ", opened->protocol, ", this client ", kProtocolVersion);
  }
  return std::shared_ptr<Session>(
      new Session(*std::move(lifeline), std::move(opened->server), std::move(reaper), std::move(mappers)));
}

Session::Session(std::shared_ptr<Lifeline> lifeline, codec::Server server, std::shared_ptr<Reaper> reaper,
                 std::shared_ptr<const MapperTable> mappers)
    : reaper_(std::move(reaper)),
      mappers_(std::move(mappers)),
      server_(std::move(server)),
      arena_idle_(server_.limits.arena_idle_ms == 0 ? kArenaIdle
                                                    : std::chrono::milliseconds(server_.limits.arena_idle_ms)),
      written_(std::make_unique<WrittenArenas>(
          server_.limits.own_arena_bytes_min == 0 ? kOwnArenaBytes : server_.limits.own_arena_bytes_min)),
      lifeline_(std::move(lifeline)) {}

Session::~Session() = default;

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
  if (message.leases.empty() || written_->count() == 0) return lifeline_->Post(Verb::kRelease, payload);
  return lifeline_->Ask(Verb::kRelease, payload, [weak = weak_from_this()](const Result<Answer>& answer) {
    const auto self = weak.lock();
    if (!self || !answer.ok()) return;
    const auto returned = codec::DecodeReturned(answer->payload);
    if (returned.ok()) self->written_->Return(*returned);
  });
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
    auto answer = lifeline_->Call(Verb::kRelease, codec::Encode(TakeMessage(release)), deadline);
    if (!answer.ok()) return answer.status();
    auto returned = codec::DecodeReturned(answer->payload);
    if (!returned.ok()) return returned.status();
    written_->Return(*returned);
  } while (!release.empty());
  return Ok();
}

codec::Release Session::TakeUnused(std::chrono::steady_clock::time_point before) {
  codec::Release release;
  release.arenas = written_->TakeEmpty(before);
  release.unmapped = read_.TakeIdle(before);
  return release;
}

bool Session::Drained(Mapping& mapping, std::shared_ptr<const void> memory) {
  const Status drained = mapping.Drain();
  // After an error that ends all work on a device nothing is running there either.
  if (drained.ok() || drained.code() == Code::kAborted) return true;
  MutexLock lock(mutex_);
  undrained_.push_back(std::move(memory));
  return false;
}

Lease::Lease(std::shared_ptr<Session> of, uint64_t lease) : SessionRemains(std::move(of)), id(lease) {
  session->leases_.fetch_add(1, std::memory_order_relaxed);
}

void Lease::GiveBack(codec::Release& release) {
  session->leases_.fetch_sub(1, std::memory_order_relaxed);
  private_mapping.reset();
  if (Waits() && !session->Drained(*arena->shared, arena)) return;
  arena.reset();
  release.leases.push_back(id);
  // Another thread may have mapped it since.
  if (unmapped && !session->read().Find(arena_id, arena_generation)) release.unmapped.push_back(arena_id);
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
