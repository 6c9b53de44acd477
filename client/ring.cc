// The pages come in three answers: entries, Bell, and that the broker has sealed the entries and takes them. Only then
// is anything entered, so that whoever hears of a name afterwards finds it.
#include "client/ring.h"

#include <algorithm>
#include <utility>

#include "client/arena.h"
#include "client/codec.h"
#include "client/lifeline.h"
#include "client/session.h"

namespace arraybridge {

void Ring::Foresee(Session& session) {
  if (asked_.exchange(true, std::memory_order_relaxed)) return;
  const std::weak_ptr<Session> weak = session.weak_from_this();
  const auto ask = [&](codec::BrowsePart part, auto have) {
    return session.lifeline().Ask(Verb::kBrowse, codec::EncodeBrowse(ns_, part), [weak, have](Result<Answer> answer) {
      if (const auto self = weak.lock()) have(*self, std::move(answer));
    });
  };
  // What a busy broker does not take now is not asked again: a call does as well. They are answered in their order.
  const Status asked = ask(codec::BrowsePart::kRing,
                           [](Session& self, Result<Answer> answer) { self.ring().HaveEntries(std::move(answer)); });
  if (!asked.ok()) return;
  static_cast<void>(
      ask(codec::BrowsePart::kBell, [](Session& self, const auto& answer) { self.ring().HaveBell(self, answer); }));
}

void Ring::HaveEntries(Result<Answer> answer) {
  if (!answer.ok()) return;
  const MutexLock lock(mutex_);
  entries_ = std::move(answer->descriptor);
}

void Ring::HaveBell(Session& session, const Result<Answer>& answer) {
  {
    const MutexLock lock(mutex_);
    const UniqueFd entries = std::move(entries_);
    if (!answer.ok() || !entries.valid()) return;
    auto pages = WrittenRing::Map(entries, answer->descriptor);
    if (!pages.ok()) return;
    pages_ = *std::move(pages);
  }
  static_cast<void>(session.lifeline().Ask(Verb::kMapped, codec::EncodeRingMapped(),
                                           [weak = session.weak_from_this()](const Result<Answer>& sealed) {
                                             if (const auto self = weak.lock()) self->ring().HaveSeal(sealed);
                                           }));
}

void Ring::HaveSeal(const Result<Answer>& answer) {
  if (answer.ok()) ready_.store(true, std::memory_order_release);
}

bool Ring::Enter(Session& session, std::string_view message, std::string_view name,
                 const std::shared_ptr<Placement::Range>& range) {
  return Enter(session, message, name, range->arena->id, range->offset, &range);
}

bool Ring::Enter(Session& session, std::string_view message, std::string_view name, uint64_t arena, uint64_t offset) {
  return Enter(session, message, name, arena, offset, nullptr);
}

bool Ring::Enter(Session& session, std::string_view message, std::string_view name, uint64_t arena, uint64_t offset,
                 const std::shared_ptr<Placement::Range>* range) {
  if (!ready_.load(std::memory_order_acquire) || message.size() > ring::kMessageBytesMax) return false;
  if (!session.lifeline().alive()) return false;
  bool asleep = false;
  {
    const MutexLock lock(mutex_);
    if (!LookLocked(session) || head_ - seen_ == ring::kEntries) return false;
    Sent& sent = sent_[head_ % ring::kEntries];
    sent.name = name;
    sent.arena = arena;
    sent.offset = offset;
    if (range != nullptr) {
      sent.range = *range;
      session.written().HoldForBroker(*(*range)->arena, offset);
    } else {
      sent.range.reset();
    }
    ring::Write(pages_->page().entries[head_ % ring::kEntries], message);
    const uint64_t sleep = ring::Enter(pages_->page(), ++head_, pages_->bell());
    asleep = sleep != 0 && sleep != woken_;
    if (asleep) woken_ = sleep;
  }
  entered_.fetch_add(1, std::memory_order_relaxed);
  if (!asleep || session.lifeline().Post(Verb::kRing, {}).ok()) return true;
  // It has unread frames of ours, and looks into the ring before it serves one. The next entry tries again.
  const MutexLock lock(mutex_);
  woken_ = 0;
  return true;
}

void Ring::Look(Session& session) {
  if (!ready_.load(std::memory_order_acquire)) return;
  const MutexLock lock(mutex_);
  LookLocked(session);
}

// False: the broker counts as nobody can.
bool Ring::LookLocked(Session& session) {
  const ring::Bell& bell = pages_->bell();
  const uint64_t tail = Load(bell.tail, std::memory_order_acquire);
  if (tail - seen_ > head_ - seen_) {
    session.lifeline().Break(Unavailable("the broker took ", tail, " entries of a publish ring that has ", head_));
    return false;
  }
  for (; seen_ != tail; ++seen_) {
    const ring::Outcome outcome = bell.outcomes[seen_ % ring::kEntries];
    if (outcome.code == 0) continue;
    const auto code = static_cast<Code>(outcome.code);
    std::string because(outcome.because());
    Fail(session, sent_[seen_ % ring::kEntries],
         Status(code, Concat(CodeName(code), because.empty() ? "" : ", ", because), because));
  }
  return true;
}

void Ring::Fail(Session& session, const Sent& sent, const Status& why) {
  session.written().DropForBroker(sent.arena, sent.offset);
  if (const auto range = sent.range.lock()) range->published.store(false);
  errors_->Add(sent.name, why);
}

void Ring::GiveUp(Session& session, const Status& why) {
  if (!ready_.load(std::memory_order_acquire)) return;
  const MutexLock lock(mutex_);
  if (!LookLocked(session)) seen_ = std::min(seen_, head_);
  // Their bytes may be read yet: the arena goes with the session, and nobody carves it again.
  for (; seen_ != head_; ++seen_) errors_->Add(sent_[seen_ % ring::kEntries].name, why);
}

uint64_t Ring::unconfirmed() const {
  const MutexLock lock(mutex_);
  if (pages_ == nullptr) return 0;
  return head_ - Load(pages_->bell().tail, std::memory_order_acquire);
}

}  // namespace arraybridge
