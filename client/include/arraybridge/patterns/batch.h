// SPDX-License-Identifier: Apache-2.0
// A batch is several requests of a service, which a model answers faster together than one by one.
//
//   auto batch = arraybridge::ReceiveBatch(service, {.most = 8, .within = std::chrono::milliseconds(5)});
//   if (!batch.ok()) return Log(batch.status());
//   for (arraybridge::ServiceRequest& request : *batch) Log(request.Reply(request.value().views).status());
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include <arraybridge/services/service.h>

#include "proto/boundary/result.h"

namespace arraybridge {

struct BatchOptions {
  size_t most = 8;                      // the largest number of requests
  std::chrono::milliseconds within{0};  // time to wait for further ones after the first; 0: those that are there
  std::optional<std::chrono::milliseconds> timeout{};  // time to wait for the first one; nothing: no limit
};

// The next requests, at least one, in the order in which they came. The server may answer them in any order. Requests
// that were cancelled meanwhile say so. INVALID_ARGUMENT: `most` is 0. Errors of Service::Receive for the first one.
Result<std::vector<ServiceRequest>> ReceiveBatch(Service& service, const BatchOptions& options);

}  // namespace arraybridge
