// SPDX-License-Identifier: Apache-2.0
// A call of a service, 4 KiB there and 4 KiB back: one caller and one server in two processes. Its floor, of the same
// run, is a hand-off through a channel there and another one back.
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include <arraybridge/services/service.h>

#include "tests/bench/support.h"

namespace arraybridge::bench {
namespace {

constexpr int kBurst = 1000;
constexpr int kFirst = 200;  // from here on the direct channels exist
constexpr size_t kFloats = 1024;

Broker BrokerOf(const Arguments& arguments) {
  return Broker({.address = arguments.Text("address"), .ns = "services", .timeout = std::chrono::seconds(30)});
}

// Serves until it is killed. Starts before this process has a connection or a thread.
pid_t StartServer(const Arguments& arguments) {
  const pid_t server = ::fork();
  if (server != 0) return server;
  Broker broker = BrokerOf(arguments);
  auto service = Must(Service::Open(broker, "echo", {}));
  const std::vector<float> answer(kFloats, 2);
  const View view = Must(Describe(const_cast<float*>(answer.data()), {2, 32, 1}, {kFloats}, {}, {}, true, nullptr));
  while (true) {
    auto request = Must(service.Receive({}));
    Must(request.Reply({&view, 1}));
  }
}

// Sends back a copy of what arrives, until it is killed.
pid_t StartChannel(const Arguments& arguments) {
  const pid_t peer = ::fork();
  if (peer != 0) return peer;
  Broker broker = BrokerOf(arguments);
  auto back = Must(broker.OpenChannel("back", Channel::Role::kSender));
  auto there = Must(broker.OpenChannel("there", Channel::Role::kReceiver));
  while (true) {
    const auto received = Must(there.Receive({}));
    const std::vector<float> answer(kFloats, 2);
    const View view = Must(Describe(const_cast<float*>(answer.data()), {2, 32, 1}, {kFloats}, {}, {}, true, nullptr));
    Must(broker.Send(back, {&view, 1}, {}));
  }
}

void Run(const Arguments& arguments) {
  const std::vector<pid_t> peers{StartServer(arguments), StartChannel(arguments)};
  Broker broker = BrokerOf(arguments);
  auto caller = Must(ServiceCaller::Open(broker, "echo"));
  auto there = Must(broker.OpenChannel("there", Channel::Role::kSender));
  auto back = Must(broker.OpenChannel("back", Channel::Role::kReceiver));
  const std::vector<float> source(kFloats, 1);
  const View view = Must(Describe(const_cast<float*>(source.data()), {2, 32, 1}, {kFloats}, {}, {}, true, nullptr));
  const auto call = [&] { Must(caller.Call({&view, 1}, {.timeout = std::chrono::seconds(30)})); };
  const auto there_and_back = [&] {
    Must(broker.Send(there, {&view, 1}, {}));
    Must(back.Receive({}));
  };
  for (int i = 0; i < kFirst; ++i) call(), there_and_back();
  const auto times = Interleaved(arguments.Number("rounds", 15), kBurst, {there_and_back, call});
  Print("call_4kib", {{"floor", times[0]}, {"value", times[1]}});
  for (const pid_t peer : peers) {
    ::kill(peer, SIGKILL);
    ::waitpid(peer, nullptr, 0);
  }
}

}  // namespace
}  // namespace arraybridge::bench

int main(int argc, char** argv) { arraybridge::bench::Run(arraybridge::bench::Arguments(argc, argv)); }
