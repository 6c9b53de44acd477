// SPDX-License-Identifier: Apache-2.0
// The functions below are called for every descriptor of the process. For a descriptor without a meter they cost two
// loads. gRPC closes a descriptor when no thread reads or writes it any more, so a meter is used by no thread when it
// is deleted.
#include "daemon/service/grpc/grpc_sockets.h"

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <utility>

#include "daemon/service/telemetry/log.h"
#include "daemon/service/telemetry/log_throttle.h"

extern "C" {
ssize_t __real_recvmsg(int socket, msghdr* message, int flags);        // NOLINT(bugprone-reserved-identifier)
ssize_t __real_sendmsg(int socket, const msghdr* message, int flags);  // NOLINT(bugprone-reserved-identifier)
int __real_close(int descriptor);                                      // NOLINT(bugprone-reserved-identifier)
}

namespace arraybridge::daemon {
namespace {

constexpr size_t kPageSize = 1024;
constexpr size_t kPages = 1024;  // together the most descriptors that Linux gives a process by default

using Meter = std::atomic<GrpcMeter*>;
using Page = std::array<Meter, kPageSize>;

// By descriptor. The linker's functions get no object, so the table is global; its pages are never freed.
std::array<std::atomic<Page*>, kPages> table;

Meter* FindMeter(int descriptor) {
  const auto number = static_cast<size_t>(descriptor);  // a negative one is too large
  if (number >= kPages * kPageSize) return nullptr;
  Page* const page = table[number / kPageSize].load(std::memory_order_acquire);
  return page == nullptr ? nullptr : &(*page)[number % kPageSize];
}

GrpcMeter* MeterOf(int descriptor) {
  Meter* const meter = FindMeter(descriptor);
  return meter == nullptr ? nullptr : meter->load(std::memory_order_acquire);
}

void ShutDown(int descriptor, const GrpcMeter& meter) {
  static Mutex mutex;
  static LogThrottle throttle;
  ::shutdown(descriptor, SHUT_RDWR);
  const MutexLock lock(mutex);
  const auto dropped = throttle.Admit(std::chrono::steady_clock::now(), log::LinesPerSecond());
  if (!dropped) return;
  log::Warn("grpc: a connection of user {} was closed: limit {} is exceeded{}", meter.uid(), meter.exceeded(),
            *dropped == 0 ? "" : Concat(" (and ", *dropped, " more)"));
}

}  // namespace

bool MeterSocket(int descriptor, std::unique_ptr<GrpcMeter> meter) {
  const auto number = static_cast<size_t>(descriptor);
  if (number >= kPages * kPageSize) return false;
  auto& place = table[number / kPageSize];
  if (place.load(std::memory_order_acquire) == nullptr) {
    auto fresh = std::make_unique<Page>();
    Page* none = nullptr;
    if (place.compare_exchange_strong(none, fresh.get(), std::memory_order_acq_rel)) static_cast<void>(fresh.release());
  }
  FindMeter(descriptor)->store(meter.release(), std::memory_order_release);
  return true;
}

}  // namespace arraybridge::daemon

extern "C" {

// NOLINTBEGIN(bugprone-reserved-identifier)
ssize_t __wrap_recvmsg(int socket, msghdr* message, int flags) {
  const ssize_t read = __real_recvmsg(socket, message, flags);
  arraybridge::daemon::GrpcMeter* const meter = arraybridge::daemon::MeterOf(socket);
  if (meter == nullptr || read <= 0 || meter->Receive(*message, static_cast<size_t>(read))) return read;
  arraybridge::daemon::ShutDown(socket, *meter);
  errno = ECONNRESET;
  return -1;
}

ssize_t __wrap_sendmsg(int socket, const msghdr* message, int flags) {
  arraybridge::daemon::GrpcMeter* const meter = arraybridge::daemon::MeterOf(socket);
  if (meter == nullptr) return __real_sendmsg(socket, message, flags);
  return meter->Send(*message, [=] { return __real_sendmsg(socket, message, flags); });
}

int __wrap_close(int descriptor) {
  arraybridge::daemon::Meter* const meter = arraybridge::daemon::FindMeter(descriptor);
  if (meter != nullptr) {
    const std::unique_ptr<arraybridge::daemon::GrpcMeter> ended(meter->exchange(nullptr, std::memory_order_acq_rel));
  }
  return __real_close(descriptor);
}
// NOLINTEND(bugprone-reserved-identifier)
}
