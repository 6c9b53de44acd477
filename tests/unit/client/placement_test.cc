// SPDX-License-Identifier: Apache-2.0
// Placements with a test's broker: the holders of a range, and when its bytes are free again.
#include <arraybridge/broker.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <thread>

#include "arraybridge/v1/broker.pb.h"
#include "proto/boundary/frame.h"

namespace arraybridge {
namespace {

constexpr uint64_t kArenaBytes = 1 << 20;
constexpr std::chrono::seconds kPatience{10};
constexpr std::chrono::seconds kHaste{1};  // timeout of a call that gets no answer

// Opens a session, grants one arena, and answers a Publish only when the test says so.
class FakeBroker {
 public:
  FakeBroker() {
    std::string pattern = ::testing::TempDir() + "/placementXXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    listener_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    EXPECT_LT(socket_path().size(), sizeof name.sun_path);
    std::memcpy(name.sun_path, socket_path().c_str(), socket_path().size() + 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeBroker() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    ::unlink(socket_path().c_str());
    ::rmdir(directory_.c_str());
  }
  FakeBroker(const FakeBroker&) = delete;
  FakeBroker& operator=(const FakeBroker&) = delete;

  const std::string& directory() const { return directory_; }
  // Refuses the Publish that was left unanswered, before the next answer of any kind.
  void RefuseThePublish() { refuse_.store(true); }
  // Reads one more request, and then none before Resume.
  void Stall() { stalled_.store(true); }
  void Resume() {
    stalled_.store(false);
    stalled_.notify_all();
  }

 private:
  std::string socket_path() const { return directory_ + "/lifeline.sock"; }

  void Serve() {
    const UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::vector<std::byte> buffer(kFrameBytesMax);
    Frame frame;
    while (client.valid() && ReceiveFrame(client.get(), buffer, true, &frame) == ReceiveOutcome::kFrame) {
      stalled_.wait(true);
      if (frame.header.verb == static_cast<uint16_t>(Verb::kPublish)) published_ = frame.header;
      if (refuse_.exchange(false)) Send(client, published_, Code::kInternal, v1::Error());
      Answer(client, frame.header);
    }
  }
  void Answer(const UniqueFd& client, const FrameHeader& request) {
    if ((request.flags & kFrameNoReply) != 0) return;
    switch (static_cast<Verb>(request.verb)) {
      case Verb::kOpenSession: {
        v1::OpenSessionResponse opened;
        opened.set_protocol(kProtocolVersion);
        return Send(client, request, Code::kOk, opened);
      }
      case Verb::kAllocate: {
        const v1::AllocateResponse arena = Arena();
        return Send(client, request, Code::kOk, arena, memory_.get());
      }
      case Verb::kPublish:
        return;
      default:
        return Send(client, request, Code::kOk, v1::ReleaseResponse());
    }
  }
  v1::AllocateResponse Arena() {
    memory_.reset(::memfd_create("fake", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(memory_.get(), kArenaBytes), 0);
    v1::AllocateResponse answer;
    answer.mutable_handle()->set_kind(v1::HANDLE_KIND_MEMFD);
    answer.mutable_handle()->set_arena(7);
    answer.mutable_handle()->set_generation(9);
    answer.mutable_handle()->set_size(kArenaBytes);
    answer.mutable_handle()->set_arena_size(kArenaBytes);
    answer.mutable_handle()->mutable_device()->set_type(kDeviceCpu);
    return answer;
  }
  template <class Message>
  static void Send(const UniqueFd& client, const FrameHeader& to, Code code, const Message& message, int fd = -1) {
    const FrameHeader header{to.verb, 0, static_cast<uint32_t>(code), to.request};
    // The client may be gone, because a test that stalls this broker ends before all answers are sent.
    const SendOutcome sent = SendFrame(client.get(), header, message.SerializeAsString(), fd, true);
    EXPECT_TRUE(sent == SendOutcome::kSent || sent == SendOutcome::kClosed);
  }

  std::string directory_;
  UniqueFd listener_;
  UniqueFd memory_;
  FrameHeader published_{};
  std::atomic<bool> refuse_{false};
  std::atomic<bool> stalled_{false};
  std::thread thread_;
};

class PlacementTest : public ::testing::Test {
 protected:
  explicit PlacementTest(std::chrono::milliseconds timeout = kPatience)
      : broker_({.address = fake_.directory(), .timeout = timeout}) {}

  Placement Placed() {
    const ArraySpec spec{{2, 32, 1}, "float32", {64}, {}, 0};
    auto placed = broker_.Empty({&spec, 1});
    EXPECT_TRUE(placed.ok()) << placed.status().ToString();
    return *std::move(placed);
  }
  static void* AddressOf(const Placement& placement) { return placement.views().front().data; }

  FakeBroker fake_;
  Broker broker_;
};

class HastyPlacementTest : public PlacementTest {
 protected:
  HastyPlacementTest() : PlacementTest(kHaste) {}
};

TEST_F(PlacementTest, IsFoundByItsViewsAndHasTwoHolders) {
  const Placement other = Placed();  // keeps the arena
  std::optional<Placement> first = Placed();
  void* const address = AddressOf(*first);
  std::optional<Placement> second;
  {
    auto found = broker_.PlacementOf(first->views());
    ASSERT_TRUE(found);
    second = *std::move(found);
  }
  EXPECT_EQ(second->range(), first->range());
  first.reset();
  const Placement while_held = Placed();
  EXPECT_NE(AddressOf(while_held), address);
  second.reset();
  EXPECT_EQ(AddressOf(Placed()), address);
}

TEST_F(PlacementTest, IsNotFoundByForeignOrOffsetMemory) {
  const Placement placed = Placed();
  alignas(kArrayAlignment) float mine[64] = {};
  View view = placed.views().front();
  view.data = mine;
  EXPECT_FALSE(broker_.PlacementOf({&view, 1}));
  view = placed.views().front();
  view.data = static_cast<std::byte*>(view.data) + 4;
  EXPECT_FALSE(broker_.PlacementOf({&view, 1}));
  view = placed.views().front();
  view.shape = {65};  // one element more than the range holds
  view.strides = {1};
  EXPECT_FALSE(broker_.PlacementOf({&view, 1}));
}

TEST_F(HastyPlacementTest, StaysUnpublishedWhenItsPublishCannotBeSent) {
  const Placement placed = Placed();
  fake_.Stall();
  // Large requests fill the socket. Each caller gives up at its own deadline.
  const std::string large(60000, 'x');
  std::vector<std::thread> callers;
  for (int i = 0; i < 20; ++i) {
    callers.emplace_back([&] { EXPECT_EQ(broker_.List(large).status().code(), Code::kDeadlineExceeded); });
  }
  for (std::thread& caller : callers) caller.join();
  const auto unsent = broker_.Publish(placed, {.name = "a", .metadata = large});
  EXPECT_EQ(unsent.status().code(), Code::kDeadlineExceeded) << unsent.status().ToString();
  EXPECT_TRUE(broker_.PlacementOf(placed.views()));
  fake_.Resume();
}

TEST_F(HastyPlacementTest, BelongsToTheBrokerWhenAPublishTimesOut) {
  const Placement other = Placed();  // keeps the arena
  std::optional<Placement> placed = Placed();
  void* const address = AddressOf(*placed);
  EXPECT_EQ(broker_.Publish(*placed, {.name = "a"}).status().code(), Code::kDeadlineExceeded);
  const auto twice = broker_.Publish(*placed, {.name = "a"});
  EXPECT_EQ(twice.status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(twice.status().reason(), "PLACEMENT_PUBLISHED");
  EXPECT_FALSE(broker_.PlacementOf(placed->views()));
  placed.reset();
  EXPECT_NE(AddressOf(Placed()), address);  // the broker may have published it
  fake_.RefuseThePublish();
  ASSERT_TRUE(broker_.Flush().ok());
  EXPECT_EQ(AddressOf(Placed()), address);
}

}  // namespace
}  // namespace arraybridge
