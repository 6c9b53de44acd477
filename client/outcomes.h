// Outcomes are what became of requests that their callers gave up: the broker's answer comes all the same, and a caller
// that was told that time was up finds it here. What a late answer granted is given back elsewhere
// (Lifeline::CompletionHandler).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

#include <arraybridge/broker.h>

#include "client/lifeline.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Thread-safe.
class Outcomes {
 public:
  // The latest so many are remembered.
  static constexpr size_t kRememberedMax = 256;

  // Lifeline::nonce, and the request's number there.
  struct Key {
    // Nothing: the status says of no request that it may have been served.
    static std::optional<Key> Of(const Status& status);

    uint64_t nonce = 0;
    uint64_t request = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };

  // The share that a request would have made, if `why` says that it may yet. Before `why` is told to the caller.
  void Expect(const Status& why, Share asked) AB_EXCLUDES(mutex_);
  // The broker's answer to a request that was given up.
  void Answered(const Key& key, Verb verb, const Result<Answer>& answer) AB_EXCLUDES(mutex_);
  // Nothing: it was not answered, or so many were since that it is forgotten.
  std::optional<Outcome> Find(const Key& key) AB_EXCLUDES(mutex_);

 private:
  struct Entry {
    Key key;
    std::optional<Share> asked{};
    std::optional<Outcome> outcome{};
  };

  Entry& At(const Key& key) AB_REQUIRES(mutex_);

  Mutex mutex_;
  std::deque<Entry> entries_ AB_GUARDED_BY(mutex_);  // the oldest first
};

}  // namespace arraybridge
