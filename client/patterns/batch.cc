// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/patterns/batch.h>

#include <utility>

#include "client/lifeline/lifeline.h"

namespace arraybridge {

using std::chrono::steady_clock;

Result<std::vector<ServiceRequest>> ReceiveBatch(Service& service, const BatchOptions& options) {
  if (options.most == 0) return InvalidArgument("most is 0: state how many requests a batch may have, at least 1");
  std::vector<ServiceRequest> batch;
  AB_ASSIGN_OR_RETURN(auto first, service.Receive(options.timeout));
  batch.push_back(std::move(first));
  const auto until = steady_clock::now() + options.within;
  while (batch.size() < options.most) {
    auto next = service.Receive(TimeUntil(until));
    if (!next.ok()) break;  // there is none in time; another error comes again with the next batch
    batch.push_back(*std::move(next));
  }
  return batch;
}

}  // namespace arraybridge
