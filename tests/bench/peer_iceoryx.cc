// SPDX-License-Identifier: Apache-2.0
// A peer: one chunk passed through iceoryx (2.0), one way: half of a round trip between two processes over two topics;
// neither side reads or writes the payload. Both wait as a service would, blocked in a WaitSet. Needs RouDi.
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include <iceoryx_posh/popo/untyped_publisher.hpp>
#include <iceoryx_posh/popo/untyped_subscriber.hpp>
#include <iceoryx_posh/popo/wait_set.hpp>
#include <iceoryx_posh/runtime/posh_runtime.hpp>
#include "tests/bench/support.h"

namespace arraybridge::bench {
namespace {

using iox::capro::IdString_t;
using iox::capro::ServiceDescription;

constexpr size_t kLast = 1;  // size of the chunk that ends the peer
constexpr iox::units::Duration kPatience = iox::units::Duration::fromSeconds(30);

ServiceDescription Topic(const char* direction) {
  return {IdString_t("arraybridge"), IdString_t("bench"), IdString_t(iox::cxx::TruncateToCapacity, direction)};
}

struct Ends {
  Ends(const char* to, const char* from) : sends(Topic(to)), receives(Topic(from)) {
    if (waits.attachState(receives, iox::popo::SubscriberState::HAS_DATA).has_error()) Fail("no room in a WaitSet");
  }

  void Send(size_t bytes) {
    auto chunk = sends.loan(static_cast<uint32_t>(bytes));
    if (chunk.has_error()) Fail("iceoryx has no chunk of " + std::to_string(bytes) + " bytes");
    sends.publish(chunk.value());
  }
  // Returns the size of the received chunk.
  size_t Receive() {
    for (;;) {
      if (auto chunk = receives.take(); !chunk.has_error()) {
        const auto* const header = iox::mepoo::ChunkHeader::fromUserPayload(chunk.value());
        const size_t bytes = header->userPayloadSize();
        receives.release(chunk.value());
        return bytes;
      }
      if (waits.timedWait(kPatience).empty()) Fail("nothing came");
    }
  }

  iox::popo::UntypedPublisher sends;
  iox::popo::UntypedSubscriber receives;
  iox::popo::WaitSet<1> waits;
};

void AwaitPeer(const Ends& ends) {
  while (!ends.sends.hasSubscribers() || ends.receives.getSubscriptionState() != iox::SubscribeState::SUBSCRIBED) {
    ::usleep(1000);
  }
}

// Returns as many bytes as arrive. Starts before this process has a runtime.
pid_t StartPeer() {
  const pid_t peer = ::fork();
  if (peer != 0) return peer;
  iox::runtime::PoshRuntime::initRuntime("arraybridge-bench-back");
  {
    Ends ends("back", "there");
    AwaitPeer(ends);
    for (size_t bytes = 0; (bytes = ends.Receive()) != kLast;) ends.Send(bytes);
  }
  ::_exit(0);
}

void Run(const Arguments& arguments) {
  const int rounds = arguments.Number("rounds", 15);
  const pid_t peer = StartPeer();
  iox::runtime::PoshRuntime::initRuntime("arraybridge-bench-there");
  {
    Ends ends("there", "back");
    AwaitPeer(ends);
    for (const auto& [id, bytes] :
         {std::pair{"peer_iceoryx_4kib", size_t{4} << 10}, {"peer_iceoryx_1mib", size_t{1} << 20}}) {
      const auto there_and_back = [&, size = bytes] {
        ends.Send(size);
        if (ends.Receive() != size) Fail("another chunk came back");
      };
      for (int i = 0; i < 100; ++i) there_and_back();
      Print(id, {{"value", Interleaved(rounds, 200, {there_and_back})[0] / 2}});
    }
    ends.Send(kLast);
  }
  ::waitpid(peer, nullptr, 0);
}

}  // namespace
}  // namespace arraybridge::bench

int main(int argc, char** argv) { arraybridge::bench::Run(arraybridge::bench::Arguments(argc, argv)); }
