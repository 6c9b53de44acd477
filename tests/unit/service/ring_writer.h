// A session that publishes without calls, honest or not: it can write its ring as it likes.
#pragma once

#include <sys/mman.h>

#include <string>

#include "daemon/service/verbs.h"
#include "proto/boundary/ring_layout.h"

namespace arraybridge {

class RingWriter {
 public:
  RingWriter(Verbs& verbs, const Caller& of, const std::string& ns = {}) : caller(of) {
    v1::BrowseRequest request;
    request.set_namespace_(ns);
    request.set_part(v1::BrowseRequest::RING);
    const auto entries = verbs.Browse(caller, request);
    request.set_part(v1::BrowseRequest::BELL);
    const auto bell = verbs.Browse(caller, request);
    AB_CHECK(entries.ok() && bell.ok());
    page_ = static_cast<ring::Page*>(
        ::mmap(nullptr, sizeof(ring::Page), PROT_READ | PROT_WRITE, MAP_SHARED, entries->descriptor.get(), 0));
    bell_ = static_cast<const ring::Bell*>(
        ::mmap(nullptr, sizeof(ring::Bell), PROT_READ, MAP_SHARED, bell->descriptor.get(), 0));
    AB_CHECK(page_ != MAP_FAILED && static_cast<const void*>(bell_) != MAP_FAILED);
    v1::MappedRequest mapped;
    mapped.set_ring(true);
    AB_CHECK(verbs.Mapped(caller, mapped).ok());
  }
  ~RingWriter() {
    ::munmap(page_, sizeof(ring::Page));
    ::munmap(const_cast<ring::Bell*>(bell_), sizeof(ring::Bell));
  }
  RingWriter(const RingWriter&) = delete;
  RingWriter& operator=(const RingWriter&) = delete;

  void Enter(const v1::PublishRequest& request) { Enter(request.SerializeAsString()); }
  void Enter(const std::string& message) {
    ring::Write(page_->entries[head_ % ring::kEntries], message);
    ring::Enter(*page_, ++head_, *bell_);
  }
  Code CodeOf(uint64_t entry) const { return static_cast<Code>(bell_->outcomes[entry].code); }
  std::string ReasonOf(uint64_t entry) const { return std::string(bell_->outcomes[entry].because()); }
  uint64_t tail() const { return Load(bell_->tail, std::memory_order_acquire); }
  ring::Page& page() { return *page_; }

  const Caller caller;

 private:
  ring::Page* page_ = nullptr;
  const ring::Bell* bell_ = nullptr;
  uint64_t head_ = 0;
};

}  // namespace arraybridge
