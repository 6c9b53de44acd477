// SPDX-License-Identifier: Apache-2.0
// A GrpcMeter counts what one connection to a gRPC door costs the daemon, and says when it costs too much. gRPC 1.51
// limits the calls of a connection only after the client has agreed. It limits neither the calls that a client starts
// and resets at once nor the bytes of unfinished headers. It queues them, and serves other users when it has served
// them. A GrpcUser is the account of all connections of one user.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/service/grpc/http2_frames.h"
#include "proto/boundary/mutex.h"

namespace arraybridge::daemon {

// Thread-safe.
class GrpcUser {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  GrpcUser(uint32_t uid, const Limits& limits) : uid_(uid), limits_(limits), left_(Most()) {}

  uint32_t uid() const { return uid_; }

  // Each returns the name of the limit that is exceeded, or null; the charge is made in either case.
  const char* ChargeCall();
  const char* ChargeBytes(uint64_t bytes);
  // Resets, and what else costs as much: connections, and control frames that answer nothing.
  const char* ChargeResets(uint64_t count, TimePoint now = std::chrono::steady_clock::now()) AB_EXCLUDES(mutex_);
  void Return(uint64_t calls, uint64_t bytes) {
    calls_ -= calls;
    bytes_ -= bytes;
  }

  // Nothing is charged, and the user may reset as much as one that has never connected.
  bool IsBlank(TimePoint now = std::chrono::steady_clock::now()) AB_EXCLUDES(mutex_);

 private:
  double Most() const;
  void Refill(TimePoint now) AB_REQUIRES(mutex_);

  const uint32_t uid_;
  const Limits& limits_;
  std::atomic<uint64_t> calls_{0};  // in progress
  std::atomic<uint64_t> bytes_{0};  // of their requests
  Mutex mutex_;
  double left_ AB_GUARDED_BY(mutex_);  // resets that the user may cause now
  TimePoint refilled_ AB_GUARDED_BY(mutex_) = std::chrono::steady_clock::now();
};

// Thread-safe. Its destructor returns the calls and bytes that it has charged to its user.
class GrpcMeter {
 public:
  GrpcMeter(const Limits& limits, std::shared_ptr<GrpcUser> user) : limits_(limits), user_(std::move(user)) {}
  ~GrpcMeter();

  // Counts the bytes that were read, before gRPC sees them. False: the connection has exceeded a limit, now or earlier,
  // and gRPC must read no more of it.
  bool Receive(const msghdr& message, size_t bytes) AB_EXCLUDES(mutex_);
  // `write` writes the message; returns what it returns. The written bytes are counted before any answer to them.
  template <class Write>
  ssize_t Send(const msghdr& message, const Write& write) AB_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const ssize_t written = write();
    if (written > 0) CountSent(message, static_cast<size_t>(written));
    return written;
  }
  // The name of the limit that the connection has exceeded, or null.
  const char* exceeded() const AB_EXCLUDES(mutex_);
  uint32_t uid() const { return user_->uid(); }

 private:
  struct Call {
    uint32_t stream;
    uint64_t bytes;  // of its request
  };

  void CountSent(const msghdr& message, size_t bytes) AB_REQUIRES(mutex_);
  void CountSent(const Http2Frame& frame) AB_REQUIRES(mutex_);
  const char* Count(const Http2Frame& frame) AB_REQUIRES(mutex_);
  const char* CountHeaders(const Http2Frame& frame) AB_REQUIRES(mutex_);
  const char* CountData(const Http2Frame& frame) AB_REQUIRES(mutex_);
  // A frame that answers one of the daemon's, if one is still expected, costs nothing.
  const char* CountAnswer(uint64_t& expected);
  Call* Find(uint32_t stream) AB_REQUIRES(mutex_);
  // False: no such call is in progress.
  bool End(uint32_t stream) AB_REQUIRES(mutex_);

  const Limits& limits_;
  const std::shared_ptr<GrpcUser> user_;
  mutable Mutex mutex_;
  Http2Frames received_ AB_GUARDED_BY(mutex_){Http2Frames::kPrefaceBytes};
  Http2Frames sent_ AB_GUARDED_BY(mutex_);
  std::vector<Call> calls_ AB_GUARDED_BY(mutex_);  // in progress; at most limits.grpc_streams_max + 1
  uint32_t last_stream_ AB_GUARDED_BY(mutex_) = 0;
  uint64_t header_bytes_ AB_GUARDED_BY(mutex_) = 0;  // of the headers that are being read
  // Frames that answer the daemon's, or come with calls, are ordinary: so many of each are still expected.
  uint64_t settings_expected_ AB_GUARDED_BY(mutex_) = 1;
  uint64_t settings_acks_expected_ AB_GUARDED_BY(mutex_) = 0;
  uint64_t ping_acks_expected_ AB_GUARDED_BY(mutex_) = 0;
  uint64_t updates_expected_ AB_GUARDED_BY(mutex_) = 2;  // WINDOW_UPDATE, and PING by which clients measure
  const char* exceeded_ AB_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace arraybridge::daemon
