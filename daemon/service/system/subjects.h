// SPDX-License-Identifier: Apache-2.0
// The Subjects are the certificate subjects that have connected over TCP since the broker's first life. All names in
// one certificate together are one subject. A subject keeps its number, so that it keeps its shares when it connects
// again, even with a renewed certificate, or to the next daemon. When limits.subjects are known, a new one takes the
// place of the one that made no call for longest, of those of which nothing is in the broker. No number is used again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/broker/recovery/recovered.h"
#include "daemon/config/config.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// The names in a certificate, before they are checked.
struct CertificateNames {
  std::vector<std::string> common;
  std::vector<std::string> uris;
  std::vector<std::string> dns;
};

// Thread-safe.
class Subjects {
 public:
  // Stores a new subject for the next daemon; an error refuses it.
  using Keep = std::function<Status(uint32_t number, const std::vector<std::string>& names)>;
  // Returns the first of these numbers of which nothing is in the broker, and removes it from the store.
  using Forget = std::function<std::optional<uint32_t>(std::span<const uint32_t> numbers)>;
  // `known`: the subjects of the daemons before this one.
  explicit Subjects(const Limits& limits, const std::vector<Subject>& known = {}, Keep keep = {}, Forget forget = {});

  // The names of a subject: its main name first (common name, else URI, else DNS name), then the others in their order.
  // Names that are not text or contain control characters are omitted. UNAUTHENTICATED: there is no name.
  // RESOURCE_EXHAUSTED: limits.subject_bytes_max.
  Result<std::vector<std::string>> NamesOf(const CertificateNames& names) const;
  // RESOURCE_EXHAUSTED: limits.subjects; an error of `keep`.
  Result<uint32_t> NumberOf(const std::vector<std::string>& subject) AB_EXCLUDES(mutex_);

 private:
  struct Known {
    uint32_t number;
    uint64_t last_call;  // a count of calls
  };
  // False: none can be forgotten.
  bool ForgetOne() AB_REQUIRES(mutex_);

  const Limits& limits_;
  Mutex mutex_;
  std::map<std::vector<std::string>, Known> known_ AB_GUARDED_BY(mutex_);
  uint32_t next_ AB_GUARDED_BY(mutex_) = kFirstSubject;
  uint64_t calls_ AB_GUARDED_BY(mutex_) = 0;
  const Keep keep_;
  const Forget forget_;
};

}  // namespace arraybridge
