// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/subjects.h"

#include <algorithm>

#include "daemon/broker/quota/namespace.h"
#include "daemon/broker/snapshot.h"

namespace arraybridge {

Result<std::vector<std::string>> Subjects::NamesOf(const CertificateNames& names) const {
  std::vector<std::string> subject;
  uint64_t bytes = 0;
  for (const auto* const kind : {&names.common, &names.uris, &names.dns}) {
    for (const std::string& name : *kind) {
      bytes += name.size();
      if (bytes > limits_.subject_bytes_max) {
        return ResourceExhausted("the names in the certificate have more than ", limits_.subject_bytes_max,
                                 " bytes (limits.subject_bytes_max)")
            .Because("SUBJECT_TOO_LARGE")
            .With("limit", "subject_bytes_max");
      }
      if (CheckName("a name in the certificate", name, limits_.subject_bytes_max).ok()) subject.push_back(name);
    }
  }
  if (subject.empty()) {
    return Status{Code::kUnauthenticated, "the certificate has neither a common name nor a URI nor a DNS name",
                  "NO_SUBJECT"};
  }
  std::sort(subject.begin() + 1, subject.end());
  const std::string called = subject.front();
  subject.erase(std::remove(subject.begin() + 1, subject.end(), called), subject.end());
  subject.erase(std::unique(subject.begin() + 1, subject.end()), subject.end());
  return subject;
}

Subjects::Subjects(const Limits& limits, const std::vector<Subject>& known, Keep keep, Forget forget)
    : limits_(limits), keep_(std::move(keep)), forget_(std::move(forget)) {
  for (const Subject& each : known) {
    known_.emplace(each.names, Known{each.number, 0});
    next_ = std::max(next_, each.number + 1);
  }
}

bool Subjects::ForgetOne() {
  if (!forget_) return false;
  std::vector<Known> all;
  for (const auto& [names, known] : known_) all.push_back(known);
  std::ranges::sort(all, {}, &Known::last_call);
  std::vector<uint32_t> numbers;
  for (const Known& known : all) numbers.push_back(known.number);
  const auto forgotten = forget_(numbers);
  return forgotten && std::erase_if(known_, [&](const auto& each) { return each.second.number == *forgotten; }) > 0;
}

Result<uint32_t> Subjects::NumberOf(const std::vector<std::string>& subject) {
  const MutexLock lock(mutex_);
  const auto found = known_.find(subject);
  ++calls_;
  if (found != known_.end()) return found->second.last_call = calls_, found->second.number;
  if (next_ == kSharedByUsers || (known_.size() >= limits_.subjects && !ForgetOne())) {
    return ResourceExhausted("limit subjects (", limits_.subjects,
                             ") is reached: that many subjects have sessions or shares here")
        .Because("TOO_MANY_SUBJECTS")
        .With("limit", "subjects")
        .With("value", std::to_string(limits_.subjects));
  }
  if (keep_) AB_RETURN_IF_ERROR(keep_(next_, subject));
  known_.emplace(subject, Known{next_, calls_});
  return next_++;
}

}  // namespace arraybridge
