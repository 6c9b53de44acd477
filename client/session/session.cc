// SPDX-License-Identifier: Apache-2.0
#include "client/session/session.h"

#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include <arraybridge/address.h>

#include "client/process/clock_offset.h"
#include "client/session/capabilities.h"
#include "proto/boundary/share_limits.h"
#include "proto/boundary/text.h"

namespace arraybridge {
namespace {

constexpr size_t kClientNameMax = 64;
constexpr std::chrono::milliseconds kArenaIdle{5000};
constexpr uint64_t kOwnArenaBytes = 16ull << 20;
constexpr int kClockReadings = 3;
constexpr int kHellosMax = 6;
constexpr std::chrono::milliseconds kHelloPause{10};

int64_t ClockMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::floor<std::chrono::milliseconds>(now).count();
}

// Reads the broker's clock again until the offset is precise enough. Ignores a failed reading, because the next request
// reports the same error.
ClockOffset ReadClock(Lifeline& lifeline, ClockOffset offset, Deadline deadline) {
  for (int more = kClockReadings - 1; more > 0 && !offset.is_close(); --more) {
    const int64_t requested_ms = ClockMs();
    const auto answer = lifeline.Call(Verb::kGetServerInfo, {}, deadline);
    const int64_t answered_ms = ClockMs();
    if (!answer.ok()) break;
    const auto server = codec::Read<wire::GetServerInfoResponse>(answer->payload);
    if (!server.ok()) break;
    offset.Note(requested_ms, static_cast<int64_t>(server->clock_ms), answered_ms);
  }
  return offset;
}

uint64_t OwnArenaBytesOf(const codec::Server& server) {
  return server.limits.own_arena_bytes_min == 0 ? kOwnArenaBytes : server.limits.own_arena_bytes_min;
}

}  // namespace

Result<std::shared_ptr<Session>> Session::Open(const Broker::Options& options, const Shared& shared,
                                               Deadline deadline) {
  AB_RETURN_IF_ERROR(CheckText("a namespace", options.ns));
  AB_RETURN_IF_ERROR(CheckText("the name of a client", options.client));
  const codec::Capabilities capabilities = CapabilitiesOf(*shared.mappers);
  const std::string hello = wire::Encode(wire::OpenSessionRequest{.protocol_min = kProtocolVersion,
                                                                  .protocol_max = kProtocolVersion,
                                                                  .client = FirstBytes(options.client, kClientNameMax),
                                                                  .capabilities = codec::CapabilitiesOf(capabilities),
                                                                  .process_id = static_cast<uint64_t>(::getpid()),
                                                                  .token = options.token,
                                                                  .resumes = true});
  std::shared_ptr<Lifeline> lifeline;
  std::optional<Result<Answer>> answer;
  int64_t requested_ms = 0;
  // A daemon that is killed before it has stored the session closes the connection; the next one listens on its socket.
  const auto was_closed = [&] { return answer->status().code() == Code::kUnavailable && lifeline->lost(); };
  for (int attempt = 0; attempt == 0 || (was_closed() && attempt < kHellosMax); ++attempt) {
    std::this_thread::sleep_for(kHelloPause * attempt);
    AB_ASSIGN_OR_RETURN(lifeline, Lifeline::Connect(options.address.empty() ? FindAddress() : options.address, deadline,
                                                    options.interrupted, options.spin));
    requested_ms = ClockMs();
    answer.emplace(lifeline->Call(Verb::kOpenSession, hello, deadline));
  }
  const int64_t answered_ms = ClockMs();
  if (!answer->ok()) return answer->status();
  AB_ASSIGN_OR_RETURN(const auto opened, codec::Read<wire::OpenSessionResponse>((*answer)->payload));
  if (opened.protocol != kProtocolVersion) {
    return FailedPrecondition("the broker speaks protocol ", opened.protocol, ", this client ", kProtocolVersion);
  }
  codec::Server server = opened.server ? codec::ServerOf(*opened.server) : codec::Server{};
  if (server.clock_ms != 0) {
    ClockOffset offset;
    offset.Note(requested_ms, static_cast<int64_t>(server.clock_ms), answered_ms);
    if (const auto ahead = ReadClock(*lifeline, offset, deadline).ahead()) lifeline->StateDeadlines(*ahead);
  }
  lifeline->ObserveLate([outcomes = shared.outcomes, nonce = lifeline->nonce()](uint64_t request, Verb verb,
                                                                                const Result<Answer>& reply) {
    outcomes->Answered({nonce, request}, verb, reply);
  });
  lifeline->OfferQueue(options.ns);
  std::shared_ptr<Session> session(new Session(options, shared, std::move(lifeline), std::move(server)));
  session->gpus_reported_.store(!capabilities.gpu_uuids.empty());
  return session;
}

Session::Session(const Broker::Options& options, const Shared& shared, std::shared_ptr<Lifeline> lifeline,
                 codec::Server server)
    : shared_(shared),
      server_(std::move(server)),
      written_(OwnArenaBytesOf(server_)),
      read_({.arenas = options.read_arenas_max, .bytes = options.read_bytes_max}),
      releases_(*lifeline, written_, read_, fences_),
      hazards_(options.ns, options.catalogue, *lifeline),
      unwaited_(options.ns, *lifeline, written_, shared.deferred_errors),
      lifeline_(std::move(lifeline)) {}

void Session::ReportGpus() {
  if (gpus_reported_.load(std::memory_order_relaxed)) return;
  codec::Capabilities capabilities = CapabilitiesOf(*shared_.mappers);
  if (capabilities.gpu_uuids.empty() || gpus_reported_.exchange(true)) return;
  codec::Release release;
  release.own_capabilities = std::move(capabilities);
  releases_.Post(std::move(release));
}

std::string_view Session::NoteFor(std::string_view note) const {
  if (!IsUtf8(note)) return {};  // it is for display only
  if (note.size() > codec::kNoteBytesMax) return note;
  return FirstBytes(note, server_.limits.note_bytes_max);
}

std::chrono::milliseconds Session::arena_idle() const {
  return server_.limits.arena_idle_ms == 0 ? kArenaIdle : std::chrono::milliseconds(server_.limits.arena_idle_ms);
}

std::chrono::milliseconds Session::SliceOf(std::optional<Deadline> until, std::chrono::milliseconds most) const {
  const std::chrono::milliseconds longest(server_.limits.request_timeout_max_ms);
  return TimeUntil(until, longest.count() == 0 ? most : std::min(most, longest));
}

Result<Answer> Session::Call(Verb verb, std::string_view payload, Deadline deadline,
                             const Lifeline::CompletionHandler& handler) {
  auto answer = lifeline_->Call(verb, payload, deadline, handler);
  if (lifeline_->memory_wanted()) reclaimer().Nudge();
  return answer;
}

void Session::PollDirectChannels() {
  codec::Release release;
  release.direct_channels = direct_producers_.Poll();
  if (!release.empty()) releases_.Post(std::move(release));
}

}  // namespace arraybridge
