// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>

#include <arraybridge/c/ab_select.h>
#include <arraybridge/select/select.h>

#include "client/c_api/services.h"

struct ab_awaited {
  std::unique_ptr<arraybridge::AwaitedChannel> channel{};
  std::unique_ptr<arraybridge::AwaitedService> service{};  // instead of a channel

  const arraybridge::Awaitable& source() const {
    if (channel) return *channel;
    return *service;
  }
};

using namespace arraybridge::c;
using arraybridge::DeadlineExceeded;
using arraybridge::InvalidArgument;
using arraybridge::Ok;
using arraybridge::Status;

namespace {

Status NotOf(const char* what, const char* use) {
  return InvalidArgument("the ab_awaited is not of a ", what, ": use ", use);
}

}  // namespace

ab_code ab_await_channel(ab_channel* channel, ab_awaited** awaited) {
  return With(channel, "channel", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(awaited, "awaited"));
    if (channel->role != arraybridge::Channel::Role::kReceiver) {
      return InvalidArgument("channel '", channel->channel.name(),
                             "' is open as a sender, for which nothing arrives: open a receiver");
    }
    auto made = std::make_unique<ab_awaited>();
    made->channel = std::make_unique<arraybridge::AwaitedChannel>(channel->channel);
    *awaited = made.release();
    return Ok();
  });
}

ab_code ab_await_service(ab_service* service, ab_awaited** awaited) {
  return With(service, "service", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(awaited, "awaited"));
    auto made = std::make_unique<ab_awaited>();
    made->service = std::make_unique<arraybridge::AwaitedService>(service->service);
    *awaited = made.release();
    return Ok();
  });
}

int ab_fileno(const ab_awaited* awaited) { return awaited == nullptr ? -1 : awaited->source().fileno(); }

ab_code ab_try_receive(ab_awaited* awaited, ab_array** array) {
  return With(awaited, "awaited", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(array, "array"));
    if (!awaited->channel) return NotOf("channel", "ab_try_take");
    auto received = awaited->channel->Receive(std::chrono::milliseconds(0));
    if (!received.ok()) return received.status();
    *array = ArrayOf(*std::move(received));
    return Ok();
  });
}

ab_code ab_try_take(ab_awaited* awaited, ab_request** request) {
  return With(awaited, "awaited", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(request, "request"));
    if (!awaited->service) return NotOf("service", "ab_try_receive");
    auto taken = awaited->service->TryReceive();
    if (!taken) return DeadlineExceeded("no request waits: ab_select tells when one does").Because("NO_REQUEST");
    if (!taken->ok()) return taken->status();
    *request = std::make_unique<ab_request>(**std::move(taken)).release();
    return Ok();
  });
}

ab_code ab_select(ab_awaited* const* sources, size_t count, int64_t timeout_ms, size_t* places, size_t* found) {
  return Guarded([&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(sources, "sources"));
    AB_RETURN_IF_ERROR(CheckGiven(places, "places"));
    AB_RETURN_IF_ERROR(CheckGiven(found, "found"));
    std::vector<const arraybridge::Awaitable*> awaited;
    for (size_t i = 0; i < count; ++i) {
      if (sources[i] == nullptr) return InvalidArgument("sources[", i, "] is NULL");
      awaited.push_back(&sources[i]->source());
    }
    AB_ASSIGN_OR_RETURN(const auto ready, arraybridge::Select(awaited, TimeoutOf(timeout_ms)));
    std::ranges::copy(ready, places);
    *found = ready.size();
    return Ok();
  });
}

void ab_drop_awaited(ab_awaited* awaited) { std::unique_ptr<ab_awaited>(awaited).reset(); }
