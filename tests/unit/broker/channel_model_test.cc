// SPDX-License-Identifier: Apache-2.0
// Every order of open, send, receive, close, abandon, die and reopen of up to three ends, compared with a model that
// keeps one log: what was sent, and which ends ended, in order. A receiver's next answer is the first entry of the log
// that it has not seen, and in a queue no other receiver has received.
#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/broker/broker_fixture.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kSlots = 2;

constexpr ChannelTerms kQueue{.capacity = kSlots, .mode = ChannelMode::kQueue};
constexpr ChannelTerms kBlocks{.capacity = kSlots, .mode = ChannelMode::kBroadcast};
constexpr ChannelTerms kDrops{.capacity = kSlots, .mode = ChannelMode::kBroadcast, .drop_oldest = true, .replay = 1};
constexpr ChannelTerms kNewest{.capacity = 1, .mode = ChannelMode::kLatest, .drop_oldest = true, .replay = 1};

enum class Step : uint8_t { kOpen, kUse, kClose, kAbandon, kDie };

struct Entry {
  std::string notice;  // empty: a share
  uint64_t share = 0;  // its place in the arena
  bool received = false;
};

class Model {
 public:
  explicit Model(const ChannelTerms& terms) : terms_(terms) {}

  void Open(int end, ChannelRole role) {
    if (role == kSender && Count(kSender) == 0) running_ = true;
    std::set<const Entry*> seen;
    if (role == kReceiver) {
      had_receivers_ = true;
      bool behind_a_share = false;
      uint64_t before = Sent() - std::min(Sent(), terms_.replayed());
      for (const Entry& each : log_) {
        if (broadcasts() && each.notice.empty() && before > 0) --before, seen.insert(&each);
        behind_a_share = behind_a_share || (each.notice.empty() && !each.received && !seen.contains(&each));
        const bool newest = &each == Newest();
        const bool over = newest && !running_ && each.notice == "CHANNEL_ENDED";
        if (!each.notice.empty() && (!behind_a_share || broadcasts()) && !over) seen.insert(&each);
      }
    } else {
      for (const Entry& each : to_senders_) seen.insert(&each);
    }
    open_[end] = {role, std::move(seen)};
  }

  // The answer to a send: "" if it was sent.
  std::string Send(int end, uint64_t share) {
    for (const Entry& each : to_senders_) {
      if (!broadcasts() && open_[end].seen.insert(&each).second) return each.notice;
    }
    if (!broadcasts() && Queued() == kSlots) return "CHANNEL_FULL";
    for (const auto& [number, each] : open_) {
      const bool full = broadcasts() && each.role == kReceiver && Unseen(each).size() == terms_.capacity;
      if (full && !terms_.drops()) return "CHANNEL_FULL";
    }
    log_.push_back({"", share});
    for (auto& [number, each] : open_) {
      if (!broadcasts() || each.role != kReceiver) continue;
      if (const auto unseen = Unseen(each); unseen.size() > terms_.capacity) each.seen.insert(unseen.front());
    }
    return "";
  }

  // The answer to a receive: the place of the share in `share` if it is "".
  std::string Receive(int end, uint64_t* share) {
    for (Entry& each : log_) {
      if (!broadcasts() && each.notice.empty()) {
        if (!each.received) return each.received = true, *share = each.share, "";
      } else if (open_[end].seen.insert(&each).second) {
        if (!each.notice.empty()) told_.insert(&each);
        *share = each.share;
        return each.notice;
      }
    }
    return "CHANNEL_EMPTY";
  }

  void End(int end, Step how) {
    const ChannelRole role = open_[end].role;
    open_.erase(end);
    const std::string lost = how == Step::kDie ? "DIED" : "ABANDONED";
    if (role == kSender) {
      if (Count(kSender) == 0) running_ = false;
      if (how != Step::kClose) log_.push_back({"SENDER_" + lost});
      if (how == Step::kClose && !running_) log_.push_back({"CHANNEL_ENDED"});
    } else if (Count(kReceiver) == 0) {
      to_senders_.push_back({how == Step::kClose ? "NO_RECEIVER" : "RECEIVER_" + lost});
      for (Entry& each : log_) each.received = each.received || how == Step::kClose;
    }
    const bool over = !running_ && Newest() != nullptr && Newest()->notice == "CHANNEL_ENDED";
    const std::string lost_last = to_senders_.empty() ? "" : to_senders_.back().notice;
    const bool untold =
        lost_last == "RECEIVER_DIED" || (lost_last == "RECEIVER_ABANDONED" && !told_.contains(Newest()));
    const uint64_t kept = broadcasts() ? std::min(Sent(), terms_.replayed()) : Queued();
    const bool awaited = kept > 0 || (over && (untold || !had_receivers_));
    if (open_.empty() && !awaited) *this = Model(terms_);
  }

  bool is_open(int end) const { return open_.contains(end); }

 private:
  struct OpenEnd {
    ChannelRole role{};
    std::set<const Entry*> seen;
  };

  size_t Count(ChannelRole role) const {
    return static_cast<size_t>(
        std::ranges::count_if(open_, [&](const auto& each) { return each.second.role == role; }));
  }
  bool broadcasts() const { return terms_.mode > ChannelMode::kQueue; }
  uint64_t Sent() const {
    return static_cast<uint64_t>(std::ranges::count_if(log_, [](const Entry& each) { return each.notice.empty(); }));
  }
  std::vector<const Entry*> Unseen(const OpenEnd& receiver) const {
    std::vector<const Entry*> unseen;
    for (const Entry& each : log_) {
      if (each.notice.empty() && !receiver.seen.contains(&each)) unseen.push_back(&each);
    }
    return unseen;
  }
  size_t Queued() const {
    return static_cast<size_t>(
        std::ranges::count_if(log_, [](const Entry& each) { return each.notice.empty() && !each.received; }));
  }
  const Entry* Newest() const {
    const Entry* newest = nullptr;
    for (const Entry& each : log_) newest = each.notice.empty() ? newest : &each;
    return newest;
  }

  ChannelTerms terms_;
  std::map<int, OpenEnd> open_;
  std::deque<Entry> log_;  // entries are never moved: they are identified by their address
  std::deque<Entry> to_senders_;
  std::set<const Entry*> told_;  // notices that a receiver got
  bool running_ = false;
  bool had_receivers_ = false;
};

struct Move {
  int end = 0;
  Step step{};
};

struct Case {
  std::vector<ChannelRole> ends;
  ChannelTerms terms;
};

class ChannelModelTest : public BrokerTest, public ::testing::WithParamInterface<Case> {
 protected:
  // Runs one sequence on a new channel. Empty: the broker answered as the model does.
  std::string Differs(const std::vector<Move>& moves) {
    Model model(GetParam().terms);
    std::map<int, std::pair<SessionId, ChannelEndId>> ends;
    std::map<int, uint64_t> seen;
    std::string told;
    uint64_t place = 0;
    std::map<SessionId, Handle> arenas;
    for (const Move& move : moves) {
      const ChannelRole role = GetParam().ends[static_cast<size_t>(move.end)];
      auto& [session, end] = ends[move.end];
      if (move.step == Step::kOpen) {
        model.Open(move.end, role);
        session = broker().OpenSession({.uid = 1000, .client = "test"})->session;
        const ChannelTerms& terms = GetParam().terms;
        const ChannelTerms stated = terms.mode == ChannelMode::kLatest ? ChannelTerms{.mode = terms.mode} : terms;
        const auto opened = *broker().OpenChannel(session, {"", "frames", role, stated});
        end = opened.end;
        seen[move.end] = opened.seen_notice;
        if (role == kSender) arenas[session] = Arena(session);
        continue;
      }
      if (move.step != Step::kUse) {
        model.End(move.end, move.step);
        if (move.step != Step::kDie) {
          const EndedHow how = move.step == Step::kClose ? EndedHow::kClosed : EndedHow::kAbandoned;
          EXPECT_TRUE(broker().CloseChannel(session, end, how).ok());
        }
        broker().EndSession(session);
        continue;
      }
      Status status;
      std::string expected;
      uint64_t expected_place = 0;
      uint64_t got_place = 0;
      if (role == kSender) {
        auto call = Call(arenas.at(session), "", 256 * (place % 16));
        call.channel = end;
        call.seen_notice = seen[move.end];
        call.replace = false;
        expected = model.Send(move.end, 256 * (place % 16));
        status = broker().Publish(session, call).status();
        if (status.ok()) ++place;
      } else {
        expected = model.Receive(move.end, &expected_place);
        const auto received = broker().Receive(session, end, seen[move.end], true);
        status = received.status();
        if (received.ok()) got_place = received->shares.at(0).handle.offset;
      }
      for (const auto& [key, value] : status.metadata()) {
        if (key == "notice") seen[move.end] = std::stoull(value);
      }
      if (status.reason() != expected || got_place != expected_place) {
        told = Concat("expected '", expected, "' ", expected_place, ", got '", status.ToString(), "' ", got_place);
        break;
      }
    }
    for (const auto& [number, its] : ends) broker().EndSession(its.first);
    Sweep(Clock::now() + config_.orphan_grace.get());
    return told;
  }

  // All sequences of this length that begin with `moves`; the first that differs is reported.
  void Explore(std::vector<Move>& moves, std::vector<bool>& open, size_t length) {
    if (moves.size() == length) {
      ++runs_;
      if (const std::string differs = Differs(moves); !differs.empty()) ADD_FAILURE() << TextOf(moves) << differs;
      return;
    }
    for (size_t end = 0; end < GetParam().ends.size() && !HasFailure(); ++end) {
      for (const Step step : {Step::kOpen, Step::kUse, Step::kClose, Step::kAbandon, Step::kDie}) {
        if ((step == Step::kOpen) == open[end]) continue;
        const bool was = open[end];
        open[end] = step == Step::kOpen || step == Step::kUse;
        moves.push_back({static_cast<int>(end), step});
        Explore(moves, open, length);
        moves.pop_back();
        open[end] = was;
      }
    }
  }

  std::string TextOf(const std::vector<Move>& moves) const {
    static constexpr std::array<std::string_view, 5> kNames{"open", "use", "close", "abandon", "die"};
    std::string text;
    for (const Move& move : moves) {
      const bool sends = GetParam().ends[static_cast<size_t>(move.end)] == kSender;
      text += Concat(sends ? "sender " : "receiver ", move.end, " ", kNames[static_cast<size_t>(move.step)], ", ");
    }
    return text;
  }

  uint64_t runs_ = 0;
};

TEST_P(ChannelModelTest, EveryOrderOfSixSteps) {
  std::vector<Move> moves;
  std::vector<bool> open(GetParam().ends.size());
  Explore(moves, open, GetParam().ends.size() == 2 ? 7 : 6);
  EXPECT_GT(runs_, 10'000u);
}

INSTANTIATE_TEST_SUITE_P(Ends, ChannelModelTest,
                         ::testing::Values(Case{{kSender, kReceiver}, kQueue},
                                           Case{{kSender, kSender, kReceiver}, kQueue},
                                           Case{{kSender, kReceiver, kReceiver}, kQueue}));
INSTANTIATE_TEST_SUITE_P(Broadcasts, ChannelModelTest,
                         ::testing::Values(Case{{kSender, kReceiver, kReceiver}, kBlocks},
                                           Case{{kSender, kReceiver, kReceiver}, kDrops},
                                           Case{{kSender, kSender, kReceiver}, kNewest},
                                           Case{{kSender, kReceiver}, kNewest}));

}  // namespace
}  // namespace arraybridge::daemon
