// The Subjects are whoever has come over TCP in this life of the daemon. All names in one certificate together are one
// subject; it keeps its number, so that what it made counts as its own when it comes again, with a renewed certificate
// too.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// What a certificate says, before it is believed to be a name.
struct CertificateNames {
  std::vector<std::string> common;
  std::vector<std::string> uris;
  std::vector<std::string> dns;
};

// Thread-safe.
class Subjects {
 public:
  explicit Subjects(const Limits& limits) : limits_(limits) {}

  // The names of a subject: the one it is called by first (common name, else URI, else DNS name), then the others in
  // their order; what is no text, or has control characters, is left out. UNAUTHENTICATED: there is none;
  // RESOURCE_EXHAUSTED: limits.subject_bytes_max.
  Result<std::vector<std::string>> NamesOf(const CertificateNames& names) const;
  // RESOURCE_EXHAUSTED: limits.subjects.
  Result<uint32_t> NumberOf(const std::vector<std::string>& subject) AB_EXCLUDES(mutex_);

 private:
  const Limits& limits_;
  Mutex mutex_;
  std::map<std::vector<std::string>, uint32_t> numbers_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge
