// The Subjects are the certificate subjects that have connected over TCP since the broker's first life. All names in
// one certificate together are one subject. A subject keeps its number, so that it keeps its shares when it connects
// again, even with a renewed certificate, or to the next daemon.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
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
  // `known`: the subjects of the daemons before this one.
  explicit Subjects(const Limits& limits, const std::vector<Subject>& known = {}, Keep keep = {});

  // The names of a subject: its main name first (common name, else URI, else DNS name), then the others in their order.
  // Names that are not text or contain control characters are omitted. UNAUTHENTICATED: there is no name.
  // RESOURCE_EXHAUSTED: limits.subject_bytes_max.
  Result<std::vector<std::string>> NamesOf(const CertificateNames& names) const;
  // RESOURCE_EXHAUSTED: limits.subjects; an error of `keep`.
  Result<uint32_t> NumberOf(const std::vector<std::string>& subject) AB_EXCLUDES(mutex_);

 private:
  const Limits& limits_;
  Mutex mutex_;
  std::map<std::vector<std::string>, uint32_t> numbers_ AB_GUARDED_BY(mutex_);
  uint32_t next_ AB_GUARDED_BY(mutex_) = kFirstSubject;
  const Keep keep_;
};

}  // namespace arraybridge
