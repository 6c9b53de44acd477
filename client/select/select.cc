// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/select/select.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include <poll.h>

#include "client/select/ahead.h"

namespace arraybridge {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class AwaitedChannel::Core : public Ahead<Acquired> {
 public:
  Core(Channel channel, MapMode mode)
      : Ahead([channel, mode]() mutable { return channel.Receive({.mode = mode, .timeout = {}}); },
              [channel]() mutable { static_cast<void>(channel.Abandon()); }),
        name_(channel.name()) {}
  const std::string& name() const { return name_; }

 private:
  const std::string name_;
};

class AwaitedService::Core : public Ahead<ServiceRequest> {
 public:
  explicit Core(Service service)
      : Ahead([service]() mutable { return service.Receive({}); }, [service]() mutable { service.Close(); }) {}
};

AwaitedChannel::AwaitedChannel(Channel channel, MapMode mode)
    : core_(std::make_unique<Core>(std::move(channel), mode)) {}
AwaitedChannel::~AwaitedChannel() = default;
int AwaitedChannel::fileno() const { return core_->fileno(); }
std::optional<Result<Acquired>> AwaitedChannel::TryReceive() { return core_->Take(steady_clock::now()); }
Result<Acquired> AwaitedChannel::Receive(std::optional<milliseconds> timeout) {
  if (auto received = core_->Take(DeadlineAfter(timeout))) return *std::move(received);
  return DeadlineExceeded("nothing was sent into channel '", core_->name(), "' in time").Because("CHANNEL_EMPTY");
}

AwaitedService::AwaitedService(Service service) : core_(std::make_unique<Core>(std::move(service))) {}
AwaitedService::~AwaitedService() = default;
int AwaitedService::fileno() const { return core_->fileno(); }
std::optional<Result<ServiceRequest>> AwaitedService::TryReceive() { return core_->Take(steady_clock::now()); }

Result<std::vector<size_t>> Select(std::span<const Awaitable* const> sources, std::optional<milliseconds> timeout) {
  if (sources.empty()) {
    return InvalidArgument("Select needs at least one channel or service: with none it would wait for nothing");
  }
  std::vector<pollfd> descriptors;
  for (const Awaitable* source : sources) descriptors.push_back({source->fileno(), POLLIN, 0});
  const int64_t most = timeout ? std::clamp<int64_t>(timeout->count(), 0, INT32_MAX) : -1;
  if (::poll(descriptors.data(), descriptors.size(), static_cast<int>(most)) < 0) {
    if (errno == EINTR) return Status(Code::kCancelled, "a signal ended Select: call it again to go on");
    return Internal("poll failed with error ", errno);
  }
  std::vector<size_t> ready;
  for (size_t place = 0; place < descriptors.size(); ++place) {
    if (descriptors[place].revents != 0) ready.push_back(place);
  }
  return ready;
}

}  // namespace arraybridge
