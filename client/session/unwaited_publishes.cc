// SPDX-License-Identifier: Apache-2.0
#include "client/session/unwaited_publishes.h"

#include <algorithm>
#include <utility>

#include "client/arenas/placement_range.h"

namespace arraybridge {

bool UnwaitedPublishes::Submit(std::string_view message, std::string_view name,
                               const std::shared_ptr<Placement::Range>& range) {
  return Submit(message, {{}, std::string(name), range->arena->id, range->offset, range}, range->arena.get());
}

bool UnwaitedPublishes::Submit(std::string_view message, std::string_view name, uint64_t arena, uint64_t offset) {
  return Submit(message, {{}, std::string(name), arena, offset, {}}, nullptr);
}

bool UnwaitedPublishes::Submit(std::string_view message, Sent sent, const WrittenArena* arena) {
  if (!lifeline_.has_queue() || !lifeline_.alive()) return false;
  const MutexLock lock(mutex_);
  // The daemon frees slots before their publishes are known to be served.
  if (sent_.size() >= session_queue::Format::kSlots) ConfirmLocked();
  // After GiveUp a new publish would never be confirmed.
  if (given_up_ || sent_.size() >= session_queue::Format::kSlots) return false;
  if (arena != nullptr) written_.HoldForBroker(*arena, sent.offset);
  const Lifeline::Submission submission = lifeline_.SubmitPublish(message);
  if (submission.submitted) {
    sent.submitted = *submission.submitted;
    sent_.push_back(std::move(sent));
    submitted_.fetch_add(1, std::memory_order_relaxed);
  } else if (arena != nullptr) {
    written_.ReleaseForBroker(sent.arena, sent.offset);
  }
  Apply(submission.confirmed);
  return submission.submitted.has_value();
}

void UnwaitedPublishes::Confirm() {
  if (submitted_.load(std::memory_order_relaxed) == 0) return;
  const MutexLock lock(mutex_);
  ConfirmLocked();
}

void UnwaitedPublishes::ConfirmLocked() {
  if (!sent_.empty()) Apply(lifeline_.TakeConfirmed());
}

void UnwaitedPublishes::Apply(const Lifeline::Confirmed& confirmed) {
  failed_.insert(failed_.end(), confirmed.failed.begin(), confirmed.failed.end());
  auto failed = failed_.begin();
  for (; !sent_.empty() && sent_.front().submitted.end <= confirmed.served; sent_.pop_front()) {
    const Sent& first = sent_.front();
    while (failed != failed_.end() && failed->request < first.submitted.request) ++failed;
    if (failed != failed_.end() && failed->request == first.submitted.request) Fail(first, failed->why);
  }
  failed_.erase(failed_.begin(), failed);
  if (sent_.empty()) failed_.clear();
}

void UnwaitedPublishes::Fail(const Sent& sent, const Status& why) {
  written_.ReleaseForBroker(sent.arena, sent.offset);
  if (const auto range = sent.range.lock()) range->published.store(false);
  const std::string& because = why.reason();
  errors_->Add(sent.name,
               Status(why.code(), Concat(CodeName(why.code()), because.empty() ? "" : ", ", because), because));
}

void UnwaitedPublishes::GiveUp(const Status& why) {
  if (submitted_.load(std::memory_order_relaxed) == 0) return;
  const MutexLock lock(mutex_);
  given_up_ = true;
  ConfirmLocked();
  // Their bytes may still be read, so their ranges are not freed; the arena ends with the session.
  for (const Sent& sent : sent_) errors_->Add(sent.name, why);
  sent_.clear();
}

uint64_t UnwaitedPublishes::unconfirmed() {
  if (submitted_.load(std::memory_order_relaxed) == 0) return 0;
  const MutexLock lock(mutex_);
  ConfirmLocked();
  return sent_.size();
}

}  // namespace arraybridge
