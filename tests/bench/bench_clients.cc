// SPDX-License-Identifier: Apache-2.0
// Many processes that call the broker at once, on all CPUs: a waited put of 4 KiB, and an acquire by a call. Their
// floor is the same number of processes that exchange messages of the same sizes with a server that echoes them: one
// thread, epoll. And pairs of processes that each have a channel: the slowest pair beside the fastest.
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arraybridge/broker.h>

#include "tests/bench/support.h"

namespace arraybridge::bench {
namespace {

constexpr int kClientsMax = 128;
constexpr int kSamplesMax = 200'000;  // of a client in one slice
constexpr size_t kRequestBytes = 48;
constexpr size_t kAnswerBytes = 110;
constexpr double kSlice = 200e3;  // microseconds in which all clients do the same work

// Shared by this process and its clients.
struct Board {
  std::atomic<int> ready;  // clients that wait for a slice
  std::atomic<int> slice;  // its number; odd ones are the floor's. -1: the end
  struct Done {
    uint64_t calls;
    float times[kSamplesMax];  // microseconds
  } done[kClientsMax];
};

Board& MapBoard() {
  void* const page = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) Fail("mmap");
  return *new (page) Board{};
}

void Nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

// A client: works in each slice, and counts.
void Work(Board& board, int client, const std::array<std::function<void()>, 2>& works) {
  for (int last = 0;;) {
    ++board.ready;
    while (board.slice == last) Nap();
    last = board.slice;
    if (last < 0) return;
    Board::Done& done = board.done[client];
    const auto& work = works[static_cast<size_t>(last) % 2];
    uint64_t calls = 0;
    const double begun = NowMicroseconds();
    for (double now = begun; now < begun + kSlice; ++calls) {
      work();
      const double after = NowMicroseconds();
      if (calls < kSamplesMax) done.times[calls] = static_cast<float>(after - now);
      now = after;
    }
    done.calls = calls;
  }
}

struct Slice {
  double per_call;  // microseconds, of all clients together
  double p99;
  double slowest;  // calls of the slowest client beside those of the fastest one
};

Slice Run(Board& board, int clients, int number) {
  while (board.ready < clients) Nap();
  board.ready = 0;
  board.slice = number;
  while (board.ready < clients) Nap();
  std::vector<float> times;
  uint64_t calls = 0, least = UINT64_MAX, most = 0;
  for (int i = 0; i < clients; ++i) {
    const Board::Done& done = board.done[i];
    times.insert(times.end(), done.times, done.times + std::min<uint64_t>(done.calls, kSamplesMax));
    calls += done.calls;
    least = std::min(least, done.calls);
    most = std::max(most, done.calls);
  }
  const auto at = times.begin() + static_cast<std::ptrdiff_t>(times.size() * 99 / 100);
  std::nth_element(times.begin(), at, times.end());
  return {kSlice / static_cast<double>(calls), *at, static_cast<double>(least) / static_cast<double>(most)};
}

// Answers each message of `sockets` until the other ends are closed.
[[noreturn]] void ServeEcho(const std::vector<UniqueFd>& sockets) {
  const UniqueFd epoll(::epoll_create1(0));
  for (const UniqueFd& socket : sockets) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = socket.get();
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) Fail("epoll");
  }
  for (size_t open = sockets.size(); open > 0;) {
    std::array<epoll_event, 64> events;
    std::array<char, 4096> buffer;
    const int count = ::epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const int socket = events[static_cast<size_t>(i)].data.fd;
      if (::recv(socket, buffer.data(), buffer.size(), 0) > 0) {
        uint32_t size = 0;
        std::memcpy(&size, buffer.data(), sizeof size);
        static_cast<void>(::send(socket, buffer.data(), size, MSG_NOSIGNAL));
      } else {
        ::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, socket, nullptr);
        --open;
      }
    }
  }
  ::_exit(0);
}

void Echo(int socket, size_t up, size_t down) {
  std::array<char, 4096> buffer;
  const auto size = static_cast<uint32_t>(down);
  std::memcpy(buffer.data(), &size, sizeof size);
  if (::send(socket, buffer.data(), up, MSG_NOSIGNAL) < 0) Fail("echo: send failed");
  if (::recv(socket, buffer.data(), buffer.size(), 0) <= 0) Fail("echo: no answer");
}

Broker Connect(const Arguments& arguments) {
  return Broker({.address = arguments.Text("address"),
                 .ns = "clients",
                 .timeout = std::chrono::seconds(30),
                 .client = "bench",
                 .catalogue = false});
}

using Call = std::function<void()>;

Call PutOf(Broker& broker, const std::string& name, std::vector<float>& source) {
  return [&broker, name, &source] {
    const View view =
        *Describe(source.data(), {2, 32, 1}, {static_cast<int64_t>(source.size())}, {}, Device{}, true, nullptr);
    Must(broker.Put({&view, 1}, {.name = name, .replace = true}));
  };
}

Call AcquireOf(Broker& broker, const std::string& name) {
  return [&broker, name] { Must(broker.Acquire({.name = name, .id = 0, .generation = 0})); };
}

void Clients(const Arguments& arguments, const std::string& verb, int clients, int rounds) {
  Board& board = MapBoard();
  std::vector<UniqueFd> ours, theirs;
  for (int i = 0; i < clients; ++i) {
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair.data()) != 0) Fail("socketpair");
    ours.emplace_back(pair[0]);
    theirs.emplace_back(pair[1]);
  }
  if (::fork() == 0) {
    ours.clear();
    ServeEcho(theirs);
  }
  theirs.clear();
  const bool puts = verb == "put";
  for (int i = 0; i < clients; ++i) {
    if (::fork() != 0) continue;
    const UniqueFd socket = std::move(ours[static_cast<size_t>(i)]);
    ours.clear();
    Broker broker = Connect(arguments);
    std::vector<float> source(1024, 1.0F);
    const std::string name = "of " + std::to_string(i);
    const Call put = PutOf(broker, name, source);
    for (int warm = 0; warm < 100; ++warm) put();
    const size_t up = puts ? kAnswerBytes : kRequestBytes, down = puts ? kRequestBytes : kAnswerBytes;
    Work(board, i, {puts ? put : AcquireOf(broker, name), [&] { Echo(socket.get(), up, down); }});
    ::_exit(0);
  }
  ours.clear();
  std::map<std::string, std::vector<double>> found;
  for (int slice = 1; slice <= 2 * rounds; ++slice) {
    const Slice done = Run(board, clients, slice);
    const std::string of = slice % 2 == 1 ? "floor" : "value";
    found[of].push_back(done.per_call);
    found[of + "_p99"].push_back(done.p99);
    found[of + "_slowest"].push_back(done.slowest);
  }
  while (board.ready < clients) Nap();
  board.slice = -1;
  while (::wait(nullptr) > 0) continue;
  std::map<std::string, double> numbers;
  for (auto& [name, values] : found) numbers[name] = Median(std::move(values));
  Print(verb + "_clients_" + std::to_string(clients), numbers);
  ::munmap(&board, sizeof board);
}

// Each pair has a channel of its own: a sender, and a receiver that counts what arrives.
void Pairs(const Arguments& arguments, int pairs, int rounds) {
  Board& board = MapBoard();
  for (int i = 0; i < pairs; ++i) {
    const std::string name = "pair " + std::to_string(i) + " of " + std::to_string(pairs);
    if (::fork() == 0) {
      Broker broker = Connect(arguments);
      Channel receives = Must(broker.OpenChannel(name, Channel::Role::kReceiver));
      while (receives.Receive({}).ok()) continue;
      ::_exit(0);
    }
    if (::fork() == 0) {
      Broker broker = Connect(arguments);
      Channel sends = Must(broker.OpenChannel(name, Channel::Role::kSender));
      const ArraySpec spec{{2, 32, 1}, "float32", {1024}, {}, 0};
      const Call send = [&] { Must(sends.Send(Must(broker.Empty({&spec, 1})), {})); };
      for (int warm = 0; warm < 100; ++warm) send();
      Work(board, i, {send, send});
      Must(sends.Close());
      ::_exit(0);
    }
  }
  std::vector<double> times, p99s, slowest;
  for (int slice = 1; slice <= 2 * rounds; ++slice) {
    const Slice done = Run(board, pairs, slice);
    times.push_back(done.per_call);
    p99s.push_back(done.p99);
    slowest.push_back(done.slowest);
  }
  while (board.ready < pairs) Nap();
  board.slice = -1;
  while (::wait(nullptr) > 0) continue;
  Print("channel_pairs_" + std::to_string(pairs), {{"floor", 2.0},  // the fastest pair beside the slowest
                                                   {"value", 1 / Median(slowest)},
                                                   {"per_hand_off", Median(times)},
                                                   {"value_p99", Median(p99s)}});
  ::munmap(&board, sizeof board);
}

}  // namespace
}  // namespace arraybridge::bench

int main(int argc, char** argv) {
  using namespace arraybridge::bench;
  const Arguments arguments(argc, argv);
  const int rounds = arguments.Number("rounds", 15);
  const std::string only = arguments.Text("only", "");  // rows whose id begins so
  for (const std::string verb : {"put", "acquire"}) {
    for (const int clients : {1, 4, 16, 64}) {
      const std::string id = verb + "_clients_" + std::to_string(clients);
      if (id.starts_with(only)) Clients(arguments, verb, clients, rounds);
    }
  }
  for (const int pairs : {16, 32}) {
    if (("channel_pairs_" + std::to_string(pairs)).starts_with(only)) Pairs(arguments, pairs, rounds);
  }
}
