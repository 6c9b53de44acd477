// SPDX-License-Identifier: Apache-2.0
// Outcomes keeps the results of requests whose callers gave up. The broker answers such a request all the same, and a
// caller that got a timeout finds the answer here. A completion handler gives back the memory that a late answer
// granted (Lifeline::CompletionHandler).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

#include <arraybridge/broker.h>

#include "client/lifeline/lifeline.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe.
class Outcomes {
 public:
  // Only the latest entries are kept, up to this number.
  static constexpr size_t kRememberedMax = 256;

  // Lifeline::nonce and the number of the request.
  struct Key {
    // Returns nothing if `status` does not say that a request may still be served.
    static std::optional<Key> Of(const Status& status);

    uint64_t nonce = 0;
    uint64_t request = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };

  // Records the share that a request will make if it is still served, as `why` says. Called before `why` is returned to
  // the caller.
  void Expect(const Status& why, Share expected) AB_EXCLUDES(mutex_);
  // Records the broker's answer to a request whose caller gave up.
  void Answered(const Key& key, Verb verb, const Result<Answer>& answer) AB_EXCLUDES(mutex_);
  // Returns nothing if the request has not been answered, or has been displaced by later ones.
  std::optional<Outcome> Find(const Key& key) AB_EXCLUDES(mutex_);

 private:
  struct Entry {
    Key key;
    std::optional<Share> expected{};
    std::optional<Outcome> outcome{};
  };

  Entry& At(const Key& key) AB_REQUIRES(mutex_);

  Mutex mutex_;
  std::deque<Entry> entries_ AB_GUARDED_BY(mutex_);  // the oldest first
};

}  // namespace arraybridge
