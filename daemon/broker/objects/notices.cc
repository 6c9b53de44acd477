// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/objects/notices.h"

#include <algorithm>
#include <utility>

namespace arraybridge::daemon {
namespace {

std::string Named(std::string_view role, const Notice& notice) {
  return NameOfEnd(role, notice.client.get(), notice.process_id);
}

// "12 s"
std::string AgeOf(const Notice& notice) {
  const auto age = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - notice.at);
  return age.count() == 0 ? "less than a second" : Concat(age.count(), " s");
}

Status EndedInOrder(const Notice& notice, std::string_view channel, bool earlier) {
  if (!earlier) {
    return {Code::kOutOfRange,
            Concat("stream ", notice.stream, OfRun(notice.run), " of channel '", channel,
                   "' has ended: its senders have closed it. The next receive waits for the next stream"),
            "CHANNEL_ENDED"};
  }
  const std::string when =
      notice.at == std::chrono::steady_clock::time_point{} ? "" : Concat(", ", AgeOf(notice), " ago");
  return Status(Code::kOutOfRange,
                Concat("stream ", notice.stream, OfRun(notice.run), " of channel '", channel,
                       "' ended before this receiver opened", when, ", and none of its shares is left: ",
                       Named("sender", notice), ", its last one, closed it after ", notice.shares,
                       " shares. The next receive waits for the next stream"),
                "CHANNEL_ENDED")
      .With("earlier", "true");
}

Status WithFacts(Status notice_status, const Notice& notice) {
  return std::move(notice_status)
      .With("notice", std::to_string(notice.number))
      .With("stream", std::to_string(notice.stream))
      .With("process_id", std::to_string(notice.process_id))
      .With("client", notice.client == nullptr ? std::string() : *notice.client)
      .With("shares", std::to_string(notice.shares))
      .With("missing", notice.missing ? "true" : "false");
}

}  // namespace

void Notices::Add(Notice notice) {
  notice.number = ++last_;
  list_.push_back(std::move(notice));
  if (list_.size() > kMost) list_.erase(list_.begin());
}

void Notices::Restore(std::vector<Notice> list, uint64_t last) {
  list_ = std::move(list);
  last_ = last;
}

const Notice* Notices::After(uint64_t number, const Run& run) const {
  const auto is_told = [&](const Notice& each) { return each.number > number && IsTold(run, each.run); };
  const auto next = std::ranges::find_if(list_, is_told);
  return next == list_.end() ? nullptr : &*next;
}

std::string NameOfEnd(std::string_view role, const std::string* client, uint64_t process_id) {
  std::string named = Concat("the ", role);
  if (client != nullptr && !client->empty()) named += Concat(" '", *client, "'");
  if (process_id != 0) named += Concat(" (process ", process_id, ")");
  return named;
}

Status ToReceiver(const Notice& notice, std::string_view channel, bool earlier) {
  if (notice.how == EndedHow::kClosed && !notice.missing) {
    return WithFacts(EndedInOrder(notice, channel, earlier), notice);
  }
  const bool died = notice.how != EndedHow::kAbandoned;
  std::string text = Concat(Named("sender", notice), " of channel '", channel, "' ",
                            died ? "ended without closing it" : "gave it up before its stream was complete", ", after ",
                            notice.shares, " shares. ", notice.missing ? "Shares are missing" : "Shares may be missing",
                            ". The next receive waits for the senders that are left or come back");
  return WithFacts(Status(Code::kAborted, std::move(text), died ? "SENDER_DIED" : "SENDER_ABANDONED"), notice);
}

Status ToSender(const Notice& notice, std::string_view channel) {
  if (notice.how == EndedHow::kClosed) {
    return WithFacts(FailedPrecondition("channel '", channel, "' has no receiver any more: ", Named("receiver", notice),
                                        " has closed it, and what was queued is dropped. The next send queues for the "
                                        "next receiver")
                         .Because("NO_RECEIVER"),
                     notice);
  }
  const bool died = notice.how == EndedHow::kDied;
  std::string text = Concat(Named("receiver", notice), " of channel '", channel, "', its last one, ",
                            died ? "ended without closing it" : "gave it up", " after ", notice.shares,
                            " shares. What is queued stays. The next send queues for the next receiver");
  return WithFacts(Status(Code::kAborted, std::move(text), died ? "RECEIVER_DIED" : "RECEIVER_ABANDONED"), notice);
}

}  // namespace arraybridge::daemon
