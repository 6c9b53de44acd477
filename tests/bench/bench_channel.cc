// SPDX-License-Identifier: Apache-2.0
// A hand-off through a channel, one way: half of a round trip between two processes over two channels; neither side
// copies a byte. Its floor is one message of a bare SEQPACKET socket: half of a ping-pong. A relay hop is the same, but
// both sides send what they received: the bytes stay where they are. And the calls of a hand-off of 4 KiB, with the
// copy, without waiting: both ends are in one process. They are the floors of the calls from Python.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include <arraybridge/broker.h>

#include "tests/bench/support.h"

namespace arraybridge::bench {
namespace {

constexpr size_t kSendBytes = 60;  // the size of the messages that are sent and received
constexpr size_t kReceivedBytes = 120;
// Of hand-offs, and of ping-pongs. While these run, the peer waits for a millisecond or more, and an end that has to do
// so more than once in 256 hand-offs stops spinning: that would be two processes which share their CPU with others.
constexpr int kBurst = 1000;
const std::string kRelayed = "relayed";  // metadata of shares that the peer sends back as they are

struct Ends {
  Ends(const Arguments& arguments, const std::string& to, const std::string& from)
      : broker({.address = arguments.Text("address"), .ns = "channels", .timeout = std::chrono::seconds(30)}),
        sends(Must(broker.OpenChannel(to, Channel::Role::kSender))),
        receives(Must(broker.OpenChannel(from, Channel::Role::kReceiver))) {}

  void Send(int64_t bytes, const std::string& metadata = {}) {
    const ArraySpec spec{{2, 32, 1}, "float32", {bytes / 4}, {}, 0};
    Must(sends.Send(Must(broker.Empty({&spec, 1})), {.metadata = metadata}));
  }
  void Relay(const Acquired& received) {
    const auto placement = broker.PlacementOf(received.views);
    if (!placement) Fail("what was received cannot be forwarded");
    if (!placement->forward()) Fail("what was received would be copied");
    Must(sends.Send(*placement, {.metadata = kRelayed}));
  }
  // nullopt: the stream has ended.
  std::optional<Acquired> Receive() {
    auto received = receives.Receive({});
    if (received.ok()) return *std::move(received);
    if (received.status().reason() != "CHANNEL_ENDED") Fail(received.status().ToString());
    return std::nullopt;
  }

  Broker broker;
  Channel sends;
  Channel receives;
};

// Returns as many bytes as arrive, or those that arrive, on `peer-cpu` if given. Starts before this process has a
// connection or a thread.
pid_t StartPeer(const Arguments& arguments) {
  const pid_t peer = ::fork();
  if (peer != 0) return peer;
  if (const int cpu = arguments.Number("peer-cpu", -1); cpu >= 0) {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(static_cast<size_t>(cpu), &only);
    if (::sched_setaffinity(0, sizeof only, &only) != 0) Fail("the peer cannot be placed");
  }
  {
    Ends ends(arguments, "back", "there");
    while (const auto received = ends.Receive()) {
      if (received->share->metadata == kRelayed) {
        ends.Relay(*received);
      } else {
        ends.Send(static_cast<int64_t>(received->views[0].nbytes()));
      }
    }
    Must(ends.sends.Close());
  }
  ::_exit(0);
}

void MeasureRelay(Echo& echo, Ends& ends, const std::string& id, int64_t bytes, int rounds) {
  ends.Send(bytes, kRelayed);
  std::optional<Acquired> received = ends.Receive();
  const auto there_and_back = [&] {
    if (!received) Fail("the peer has gone");
    ends.Relay(*received);
    received = ends.Receive();
  };
  for (int i = 0; i < 20; ++i) there_and_back();
  const auto times = Interleaved(rounds, kBurst, {[&] { echo.PingPong(kSendBytes, kReceivedBytes); }, there_and_back});
  Print(id, {{"floor", times[0] / 2}, {"value", times[1] / 2}});
}

void Run(const Arguments& arguments) {
  const int rounds = arguments.Number("rounds", 15);
  const pid_t peer = StartPeer(arguments);
  {
    Echo echo(arguments.Text("echo"));
    Ends ends(arguments, "there", "back");
    const int64_t largest = int64_t{arguments.Number("largest-mib", 1024)} << 20;
    for (const auto& [id, bytes] : {std::pair<std::string, int64_t>{"channel_4kib", 4 << 10},
                                    {"channel_1mib", 1 << 20},
                                    {largest == 1 << 30 ? "channel_1gib" : "channel_largest", largest}}) {
      const auto there_and_back = [&, size = bytes] {
        ends.Send(size);
        if (!ends.Receive()) Fail("the peer has gone");
      };
      for (int i = 0; i < 20; ++i) there_and_back();  // from here on the arenas exist and are mapped
      const auto times =
          Interleaved(rounds, kBurst, {[&] { echo.PingPong(kSendBytes, kReceivedBytes); }, there_and_back});
      Print(id, {{"floor", times[0] / 2}, {"value", times[1] / 2}});
    }
    MeasureRelay(echo, ends, "relay_hop_4kib", 4 << 10, rounds);
    MeasureRelay(echo, ends, largest == 1 << 30 ? "relay_hop_1gib" : "relay_hop_largest", largest, rounds);
    Must(ends.sends.Close());
  }
  ::waitpid(peer, nullptr, 0);
}

void RunCalls(const Arguments& arguments) {
  constexpr int kQueued = 8;  // less than the capacity of the channel
  Ends ends(arguments, "calls", "calls");
  const std::vector<float> source(1024, 1);
  const View view = Must(Describe(const_cast<float*>(source.data()), {2, 32, 1}, {1024}, {}, Device{}, true, nullptr));
  const auto send = [&] { Must(ends.sends.Send(Must(ends.broker.Place({&view, 1})), {})); };
  const auto receive = [&] { Must(ends.receives.Receive({})); };
  for (int i = 0; i < 200; ++i) send(), receive();  // from here on the direct channel exists
  const auto times = Interleaved(arguments.Number("rounds", 15) * 100, kQueued, {send, receive});
  Print("calls_send", {{"value", times[0]}});
  Print("calls_receive", {{"value", times[1]}});
  Must(ends.sends.Close());
}

}  // namespace
}  // namespace arraybridge::bench

int main(int argc, char** argv) {
  const arraybridge::bench::Arguments arguments(argc, argv);
  arraybridge::bench::Run(arguments);
  arraybridge::bench::RunCalls(arguments);
}
