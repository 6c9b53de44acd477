// SPDX-License-Identifier: Apache-2.0
// Select waits for any of several channels and services. Each is wrapped once, and receives one share, or one request,
// ahead from then on, on a thread of its own. A Broker has room for 64: TryReceive of others says QUEUED_REQUESTS.
//
//   arraybridge::AwaitedChannel left(*broker.OpenChannel("left", arraybridge::Channel::Role::kReceiver));
//   arraybridge::AwaitedChannel right(*broker.OpenChannel("right", arraybridge::Channel::Role::kReceiver));
//   const auto ready = arraybridge::Select({&left, &right}, std::chrono::seconds(1));
//   if (ready.ok() && !ready->empty() && ready->front() == 0) Use(left.TryReceive());
#pragma once

#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <arraybridge/channel.h>
#include <arraybridge/services/service.h>

#include "proto/boundary/result.h"

namespace arraybridge {

class Awaitable {
 public:
  virtual ~Awaitable() = default;
  // A descriptor that is readable while TryReceive would return something, also an error: for poll, and for the event
  // loops of other libraries. It belongs to this object.
  virtual int fileno() const = 0;
};

// The receiving end of a channel. Thread-safe. A share that was received ahead and not taken is gone with this object,
// which abandons the end, unless it was closed before.
class AwaitedChannel : public Awaitable {
 public:
  explicit AwaitedChannel(Channel channel, MapMode mode = MapMode::kShared);
  ~AwaitedChannel() override;

  int fileno() const override;
  // As Channel::Receive, without waiting. Nothing: there is none yet.
  std::optional<Result<Acquired>> TryReceive();
  // As Channel::Receive. DEADLINE_EXCEEDED, CHANNEL_EMPTY.
  Result<Acquired> Receive(std::optional<std::chrono::milliseconds> timeout);

 private:
  class Core;
  const std::unique_ptr<Core> core_;
};

// A server of a service. Thread-safe. One request more than were received is in the hands of this server. This object
// closes the Service when it is destroyed.
class AwaitedService : public Awaitable {
 public:
  explicit AwaitedService(Service service);
  ~AwaitedService() override;

  int fileno() const override;
  // As Service::Receive, without waiting. Nothing: there is none yet.
  std::optional<Result<ServiceRequest>> TryReceive();

 private:
  class Core;
  const std::unique_ptr<Core> core_;
};

// Waits until at least one of `sources` is ready; returns the places of all that are, none after the timeout. Nothing
// as timeout: no limit. A channel whose stream has ended, or that was closed, is ready, too: TryReceive says so.
// INVALID_ARGUMENT: there are no sources. CANCELLED: a signal handler has run; nothing is lost.
Result<std::vector<size_t>> Select(std::span<const Awaitable* const> sources,
                                   std::optional<std::chrono::milliseconds> timeout);
inline Result<std::vector<size_t>> Select(std::initializer_list<const Awaitable*> sources,
                                          std::optional<std::chrono::milliseconds> timeout) {
  return Select(std::span(sources.begin(), sources.size()), timeout);
}

}  // namespace arraybridge
