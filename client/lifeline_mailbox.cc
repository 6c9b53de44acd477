// Requests that go through the mailbox: those that overtake nothing which went by the socket before them.
#include <utility>

#include "client/codec.h"
#include "client/lifeline.h"

namespace arraybridge {
namespace {

constexpr uint32_t kCallsBefore = 16;  // two pages are not for who asks once

}  // namespace

// With those who ask anyway: an answer that nobody waits for is read by who waits for another.
void Lifeline::AskForMailbox() {
  if (calls_.load(std::memory_order_relaxed) > kCallsBefore) return;
  if (calls_.fetch_add(1, std::memory_order_relaxed) != kCallsBefore) return;
  // What a busy broker does not take now is not asked again: the socket does as well.
  static_cast<void>(Ask(Verb::kBrowse, codec::EncodeBrowse({}, codec::BrowsePart::kMailbox),
                        [this](Result<Answer> answer) { HaveMailboxRequests(std::move(answer)); }));
}

void Lifeline::HaveMailboxRequests(Result<Answer> answer) {
  if (!answer.ok()) return;
  mailbox_requests_ = std::move(answer->descriptor);
  const Status asked = Ask(Verb::kBrowse, codec::EncodeBrowse({}, codec::BrowsePart::kMailboxAnswers),
                           [this](const Result<Answer>& answers) { HaveMailboxAnswers(answers); });
  if (!asked.ok()) mailbox_requests_.reset();
}

void Lifeline::HaveMailboxAnswers(const Result<Answer>& answer) {
  const UniqueFd requests = std::move(mailbox_requests_);
  if (!answer.ok() || !requests.valid()) return;
  auto mapped = OwnMailbox::Map(requests, answer->descriptor);
  if (!mapped.ok()) return;
  mapped_mailbox_ = *std::move(mapped);
  static_cast<void>(Ask(Verb::kMapped, codec::EncodeMailboxMapped(), [this](const Result<Answer>& sealed) {
    if (sealed.ok()) mailbox_.store(mapped_mailbox_.get(), std::memory_order_release);
  }));
}

Result<Answer> Lifeline::CallByMailbox(OwnMailbox& mailbox, Waiter& waiter, std::string_view payload, Deadline deadline,
                                       const Late& late) {
  if (auto answer = AskInMailbox(mailbox, waiter, payload, deadline)) return *std::move(answer);
  MutexLock lock(mutex_);
  auto answer = Await(waiter, deadline, late);
  // A broker that has gone cannot say so: its page still does. A child that was forked meanwhile has no page.
  const bool has_ended = !waiter.answer && lost() && lost_by_broker_;
  if (!has_ended || mailbox_.load() != &mailbox || !mailbox.IsUnseen(waiter.header.request)) return answer;
  return Status(Code::kUnavailable, why_lost_.message(), std::string(kNotSent));
}

std::optional<Result<Answer>> Lifeline::AskInMailbox(OwnMailbox& mailbox, Waiter& waiter, std::string_view payload,
                                                     Deadline deadline) {
  asked_in_mailbox_.fetch_add(1, std::memory_order_relaxed);
  const FrameHeader& header = waiter.header;
  if (!mailbox.Ask(header, payload)) {
    // The frame that says so of a publish ring. Who does not take it has frames of ours to read, and looks into the
    // mailbox before each.
    const FrameHeader knock{static_cast<uint16_t>(Verb::kRing), kFrameNoReply, 0, next_request_.fetch_add(1)};
    static_cast<void>(SendFrameUntil(knock, {}, std::nullopt));
  }
  FrameHeader answer{};
  std::string message;
  if (!mailbox.Await(header.request, {spin_, deadline, alone_}, &answer, &message)) return std::nullopt;
  MutexLock lock(mutex_);
  TakeWaiter(header.request);
  if (answer.verb != header.verb) {
    Lose(Unavailable("the broker answered another request than was asked"));
    return why_lost_;
  }
  return AnswerOf(answer, std::move(message), {});
}

}  // namespace arraybridge
