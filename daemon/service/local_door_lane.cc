// The lane: while one lifeline is the only one that says anything, a thread waits for it in recv. To ask epoll first is
// an eighth of a short round trip. As soon as the loop has something to do that lifeline is one of many again, so the
// lane takes nobody's turn. There is none where the loop looks again before it sleeps: the two would be in each other's
// way.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <atomic>
#include <system_error>
#include <utility>

#include "daemon/service/closer.h"
#include "daemon/service/local_door.h"
#include "daemon/service/log.h"

namespace arraybridge {
namespace {

constexpr int kSoleTurnsMin = 64;
// Who says nothing for so long leaves the lane to the next one.
constexpr timeval kIdle{0, 100'000};

bool MakeBlocking(int socket) {
  const int flags = ::fcntl(socket, F_GETFL);
  return flags >= 0 && ::fcntl(socket, F_SETFL, flags & ~O_NONBLOCK) == 0 &&
         ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &kIdle, sizeof kIdle) == 0;
}

}  // namespace

void LocalDoor::StartLane() {
  try {
    lane_ = std::thread([this] { RunLane(); });
  } catch (const std::system_error& error) {
    log::Warn("no thread for the one who is alone: {}", error.what());
  }
}

void LocalDoor::ConsiderLane(std::span<const epoll_event> events) {
  const uint64_t tag = events.size() == 1 ? events.front().data.u64 : 0;
  sole_turns_ = tag == std::exchange(sole_tag_, tag) ? sole_turns_ + 1 : 0;
  if (sole_turns_ < kSoleTurnsMin || in_lane_ || !watched_.empty()) return;
  const auto found = lifelines_.find(tag / 2);
  if (tag % 2 == 0 && found != lifelines_.end()) EnterLane(found->second);
  sole_turns_ = 0;
}

// The loop itself blocks on no socket: it says so with every call.
void LocalDoor::EnterLane(const LifelinePointer& line) {
  UniqueFd own(::fcntl(line->socket(), F_DUPFD_CLOEXEC, 0));
  if (!own.valid() || line->cut() || !MakeBlocking(own.get())) return;
  line->Listen(false);
  in_lane_ = line;
  lane_socket_ = std::move(own);
  lane_given_.NotifyOne();
}

void LocalDoor::LeaveLane() {
  const LifelinePointer line = std::exchange(in_lane_, nullptr);
  if (line->takes_no_descriptors()) {
    lane_socket_.reset();
  } else {
    CloseAside(std::move(lane_socket_));
  }
  if (line->open() && !line->Listen(true)) End(line, EndCause::kLimit);
}

// Without the turn.
ReceiveOutcome LocalDoor::ReceiveInLane(const Lifeline& line, std::span<std::byte> buffer, Frame* frame) {
  const auto receive = line.takes_no_descriptors() ? ReceivePlainFrame : ReceiveFrame;
  const int socket = lane_socket_.get();
  turn_.unlock();
  const ReceiveOutcome outcome = receive(socket, buffer, true, frame);
  lane_waits_.store(true);
  turn_.lock();
  lane_waits_.store(false);
  return outcome;
}

void LocalDoor::RunLane() {
  ::pthread_setname_np(::pthread_self(), "ab-lane");
  std::vector<std::byte> buffer(kFrameBytesMax);
  MutexLock lock(turn_);
  for (;;) {
    while (!in_lane_ && !stopping_.load()) lane_given_.Wait(turn_);
    if (!in_lane_) return;
    const LifelinePointer line = in_lane_;
    Frame frame;
    const ReceiveOutcome outcome = ReceiveInLane(*line, buffer, &frame);
    Received(line, outcome, frame);
    const bool received = outcome == ReceiveOutcome::kFrame;
    if (received) served_in_lane_.fetch_add(1, std::memory_order_relaxed);
    if (!received || !line->open() || !watched_.empty() || loop_waits_.load()) LeaveLane();
    // The loop does not know of a ring that it was not woken for.
    if (!watched_.empty()) ::eventfd_write(wake_.get(), 1);
    if (loop_waits_.load()) lane_had_turn_.NotifyOne();
  }
}

}  // namespace arraybridge
