// SPDX-License-Identifier: Apache-2.0
// A session with a queue. It can write any content into its page of requests.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "tests/unit/memory/queue_client.h"
#include "tests/unit/service/asked.h"

namespace arraybridge::daemon {

class QueueWriter {
 public:
  QueueWriter(Verbs& verbs, const Caller& of, const std::string& ns = {}) : caller(of) {
    v1::BrowseRequest request;
    request.set_namespace_(ns);
    request.set_part(v1::BrowseRequest::QUEUE);
    const auto answer = TestDoor(verbs).Browse(caller, request);
    AB_CHECK(answer.ok() && answer->descriptor.count() == 2);
    client_.emplace(answer->descriptor, answer->descriptor.more().front());
    AB_CHECK(verbs.publishes.FindQueue(caller.session)->queue->Seal([] {}).ok());
  }

  // Publishes without waiting. The first is number 0.
  void Enter(const v1::PublishRequest& request) { Enter(request.SerializeAsString()); }
  void Enter(const std::string& message) { AB_CHECK(client_->Publish(message, next_++)); }
  // The result of the publish with this number, once it is served.
  Code CodeOf(uint64_t number) { return Of(number).first; }
  std::string ReasonOf(uint64_t number) { return Of(number).second; }
  // The number of served publishes, if each used one slot.
  uint64_t served() const { return client_->served(); }
  uint64_t taken() const { return client_->taken(); }
  uint64_t submitted() const { return client_->submitted(); }
  QueueClient& client() { return *client_; }

  const Caller caller;

 private:
  std::pair<Code, std::string> Of(uint64_t number) {
    while (const auto completion = client_->Reap()) {
      v1::Error error;
      AB_CHECK(error.ParseFromString(completion->payload));
      failed_[completion->header.id] = {Code{completion->header.status}, error.reason()};
    }
    const auto found = failed_.find(number);
    return found == failed_.end() ? std::pair(Code::kOk, std::string()) : found->second;
  }

  std::optional<QueueClient> client_;
  uint64_t next_ = 0;
  std::map<uint64_t, std::pair<Code, std::string>> failed_;
};

}  // namespace arraybridge::daemon
