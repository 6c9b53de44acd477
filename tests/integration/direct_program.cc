// SPDX-License-Identifier: Apache-2.0
// One end of a channel in a process of its own. Numbers are sent in order as arrays that are full of them; each is
// checked when it comes, and again before it is let go.
//   direct_program ADDRESS send NAME COUNT CAPACITY [kill]    sends 0, 1, ...; closes, or says "ready" and waits
//   direct_program ADDRESS receive NAME                       prints each number, then the reason of the end
//   direct_program ADDRESS hold NAME COUNT                    receives so many, says "ready", waits and checks them
//   direct_program ADDRESS relay NAME TO                      sends on what it receives, until the stream ends
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <arraybridge/broker.h>

namespace arraybridge {
namespace {

constexpr int64_t kWords = 512;
constexpr size_t kWindow = 8;  // arrays that are kept for a while

// Every second one is copied, in one step if that is possible.
Status Send(Broker& broker, Channel& end, uint64_t number) {
  if (number % 2 == 1) {
    std::vector<uint64_t> words(kWords, number);
    View view;
    view.data = words.data();
    view.type = {1, 64, 1};
    view.shape = {kWords};
    view.strides = {1};
    if (end.TrySend({&view, 1}, {})) return Ok();
    const auto placement = broker.Place({&view, 1});
    return placement.ok() ? end.Send(*placement, {}) : placement.status();
  }
  const ArraySpec spec{.type = {1, 64, 1}, .dtype = "uint64", .shape = {kWords}, .strides = {}};
  auto placement = broker.Empty({&spec, 1});
  if (!placement.ok()) return placement.status();
  auto* words = static_cast<uint64_t*>(placement->views()[0].data);
  for (int64_t i = 0; i < kWords; ++i) words[i] = number;
  return end.Send(*placement, {});
}

// The number; nothing if not all words are the same.
Result<uint64_t> NumberOf(const Acquired& array) {
  const auto* words = static_cast<const uint64_t*>(array.views[0].data);
  if (array.views[0].shape != std::vector<int64_t>{kWords}) return Internal("another shape");
  for (int64_t i = 1; i < kWords; ++i) {
    if (words[i] != words[0]) return Internal("word ", i, " of ", words[0], " is ", words[i]);
  }
  return words[0];
}

void Say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

int Wait() {
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

int Sender(Broker& broker, const std::vector<std::string>& words) {
  auto end = broker.OpenChannel(words[1], Channel::Role::kSender, std::stoull(words[3]));
  if (!end.ok()) return Say(end.status().ToString()), 1;
  for (uint64_t i = 0; i < std::stoull(words[2]); ++i) {
    const Status sent = Send(broker, *end, i);
    if (!sent.ok()) return Say(sent.ToString()), 1;
  }
  if (words.size() > 4) return Say("ready " + std::to_string(broker.client_stats().direct_shares)), Wait();
  return end->Close().ok() ? 0 : 1;
}

int Receiver(Broker& broker, const std::vector<std::string>& words) {
  auto end = broker.OpenChannel(words[1], Channel::Role::kReceiver);
  if (!end.ok()) return Say(end.status().ToString()), 1;
  struct Kept {
    Acquired array;
    uint64_t number;
  };
  std::deque<Kept> kept;
  const auto let_go = [&] {
    const auto again = NumberOf(kept.front().array);
    const bool same = again.ok() && *again == kept.front().number;
    kept.pop_front();
    return same;
  };
  while (true) {
    auto tried = end->TryReceive(MapMode::kShared);
    auto received = tried ? *std::move(tried) : end->Receive({});
    if (!received.ok()) {
      while (!kept.empty()) {
        if (!let_go()) return Say("overwritten"), 1;
      }
      return Say(received.status().reason()), 0;
    }
    const auto number = NumberOf(*received);
    if (!number.ok()) return Say(number.status().ToString()), 1;
    std::printf("%llu\n", static_cast<unsigned long long>(*number));  // NOLINT(google-runtime-int): printf's type
    kept.push_back({*std::move(received), *number});
    if (kept.size() > kWindow && !let_go()) return Say("overwritten"), 1;
  }
}

int Holder(Broker& broker, const std::vector<std::string>& words) {
  auto end = broker.OpenChannel(words[1], Channel::Role::kReceiver);
  if (!end.ok()) return Say(end.status().ToString()), 1;
  std::vector<Acquired> held;
  for (uint64_t i = 0; i < std::stoull(words[2]); ++i) {
    auto received = end->Receive({});
    if (!received.ok()) return Say(received.status().ToString()), 1;
    held.push_back(*std::move(received));
  }
  Say("ready " + std::to_string(broker.client_stats().direct_shares));
  Wait();
  for (uint64_t i = 0; i < held.size(); ++i) {
    const auto number = NumberOf(held[i]);
    if (!number.ok() || *number != i) return Say("overwritten"), 1;
  }
  return 0;
}

int Relay(Broker& broker, const std::vector<std::string>& words) {
  auto from = broker.OpenChannel(words[1], Channel::Role::kReceiver);
  auto to = broker.OpenChannel(words[2], Channel::Role::kSender);
  if (!from.ok() || !to.ok()) return 1;
  while (true) {
    const auto received = from->Receive({.on_peer_death = PeerDeath::kWait});
    if (received.status().reason() == "CHANNEL_ENDED") return to->Close().ok() ? 0 : 1;
    if (!received.ok()) return Say(received.status().ToString()), 1;
    const auto forward = broker.PlacementOf(received->views);
    if (!forward || !forward->forward()) return Say("it would be copied"), 1;
    Status sent = to->Send(*forward, {.on_peer_death = PeerDeath::kWait});
    if (sent.reason() == "NOT_FORWARDED") {  // the process that made it has ended
      const auto copy = broker.Place(received->views);
      if (copy.ok()) sent = to->Send(*copy, {.on_peer_death = PeerDeath::kWait});
    }
    if (!sent.ok()) return Say(sent.ToString()), 1;
  }
}

int Main(const std::vector<std::string>& words) {
  if (words.size() < 4) return 2;
  Broker broker({.address = words[1], .timeout = std::chrono::seconds(30)});
  const std::vector<std::string> its(words.begin() + 2, words.end());
  if (its[0] == "send" && its.size() >= 4) return Sender(broker, its);
  if (its[0] == "receive") return Receiver(broker, its);
  if (its[0] == "relay" && its.size() >= 3) return Relay(broker, its);
  return its[0] == "hold" && its.size() >= 3 ? Holder(broker, its) : 2;
}

}  // namespace
}  // namespace arraybridge

int main(int argc, char** argv) { return arraybridge::Main(std::vector<std::string>(argv, argv + argc)); }
