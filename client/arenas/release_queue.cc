// SPDX-License-Identifier: Apache-2.0
#include "client/arenas/release_queue.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "proto/boundary/release_limit.h"

namespace arraybridge {
namespace {

using std::chrono::steady_clock;

constexpr size_t kNotesPerMessage = 64;

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
  to.hazards_cleared = to.hazards_cleared || from.hazards_cleared;
  to.done.insert(to.done.end(), from.done.begin(), from.done.end());
  to.lost.insert(to.lost.end(), from.lost.begin(), from.lost.end());
  to.direct_channels.insert(to.direct_channels.end(), from.direct_channels.begin(), from.direct_channels.end());
  std::move(from.own_notes.begin(), from.own_notes.end(), std::back_inserter(to.own_notes));
  if (from.own_capabilities) to.own_capabilities = std::move(from.own_capabilities);
}

// Moves a part of `release` that fits into one message.
codec::Release TakeMessage(codec::Release& release) {
  codec::Release message;
  size_t capacity = kReleaseNumbersMax;
  const auto take = [&capacity](std::vector<uint64_t>& from) {
    auto some = TakeSome(from, capacity);
    capacity -= some.size();
    return some;
  };
  message.done = take(release.done);
  message.lost = take(release.lost);
  message.leases = take(release.leases);
  message.arenas = take(release.arenas);
  message.unmapped = take(release.unmapped);
  message.direct_channels = take(release.direct_channels);
  message.hazards_cleared = std::exchange(release.hazards_cleared, false);
  message.own_capabilities = std::exchange(release.own_capabilities, std::nullopt);
  const auto some =
      release.own_notes.end() - static_cast<std::ptrdiff_t>(std::min(release.own_notes.size(), kNotesPerMessage));
  message.own_notes.assign(std::make_move_iterator(some), std::make_move_iterator(release.own_notes.end()));
  release.own_notes.erase(some, release.own_notes.end());
  return message;
}

// The fences of a message, which its answer refers to.
codec::Release FencesOf(const codec::Release& message) {
  codec::Release reported;
  reported.done = message.done;
  reported.lost = message.lost;
  return reported;
}

}  // namespace

codec::Release ReleaseQueue::WithUnsent(codec::Release release) {
  const MutexLock lock(mutex_);
  Append(unsent_, std::move(release));
  return std::exchange(unsent_, {});
}

// The answer lists the ranges that the released leases free, once only. A session that writes arenas must therefore
// read it.
Status ReleaseQueue::Send(const codec::Release& message) {
  const std::string payload = codec::Encode(message);
  const bool writes = written_.count() > 0;
  const bool frees = (!message.leases.empty() || message.hazards_cleared) && writes;
  if (!writes && !message.ends_fences()) return lifeline_.Post(Verb::kRelease, payload);
  auto handler = [this, reported = FencesOf(message)](const Result<Answer>& answer) {
    if (answer.ok()) HandleReply(reported, answer->payload);
  };
  if (!frees && !message.ends_fences()) return lifeline_.Post(Verb::kRelease, payload, {}, std::move(handler));
  return lifeline_.Ask(Verb::kRelease, payload, std::move(handler));
}

void ReleaseQueue::HandleReply(const codec::Release& reported, std::string_view answer) {
  const auto released = codec::Read<wire::ReleaseResponse>(answer);
  if (!released.ok()) return;
  written_.Return(released->returned);
  if (reported.ends_fences()) fences_.Answered(reported, released->awaited, steady_clock::now());
}

void ReleaseQueue::Post(codec::Release release) {
  release = WithUnsent(std::move(release));
  while (!release.empty()) {
    codec::Release message = TakeMessage(release);
    if (Send(message).ok()) continue;
    // The end of the connection releases everything.
    if (lifeline_.lost()) return;
    const MutexLock lock(mutex_);
    Append(unsent_, std::move(message));
    Append(unsent_, std::move(release));
    return;
  }
}

Result<wire::ReleaseResponse> ReleaseQueue::Exchange(const std::string& payload, const codec::Release& reported,
                                                     Deadline deadline) {
  const auto late = [this, reported](const Result<Answer>& answer) {
    if (answer.ok()) HandleReply(reported, answer->payload);
  };
  AB_ASSIGN_OR_RETURN(const auto answer, lifeline_.Call(Verb::kRelease, payload, deadline, late));
  HandleReply(reported, answer.payload);
  return codec::Read<wire::ReleaseResponse>(answer.payload);
}

Status ReleaseQueue::Sync(codec::Release release, Deadline deadline) {
  release = WithUnsent(std::move(release));
  do {
    const codec::Release message = TakeMessage(release);
    AB_RETURN_IF_ERROR(Exchange(codec::Encode(message), FencesOf(message), deadline).status());
  } while (!release.empty());
  return Ok();
}

bool ReleaseQueue::MakerEnded(uint64_t lease) {
  const std::string question = wire::Encode(wire::ReleaseRequest{.pending = {lease}});
  const auto answer = Exchange(question, {}, steady_clock::now() + std::chrono::seconds(1));
  return answer.ok() && !answer->ended.empty();
}

Status ReleaseQueue::SyncFences(Deadline deadline) {
  if (!fences_.next_look()) return Ok();
  fences_.WaitUntil(deadline);
  codec::Release release;
  fences_.Emit(release, steady_clock::now());
  return release.empty() ? Ok() : Sync(std::move(release), deadline);
}

codec::Release ReleaseQueue::TakeUnused(steady_clock::time_point before) {
  codec::Release release;
  fences_.Emit(release, steady_clock::now());
  release.arenas = written_.TakeEmpty(before);
  release.unmapped = read_.TakeIdle(before);
  return release;
}

void ReleaseQueue::KeepUndrained(std::shared_ptr<const void> memory) {
  const MutexLock lock(mutex_);
  undrained_.push_back(std::move(memory));
}

}  // namespace arraybridge
