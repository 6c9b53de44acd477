// Both ends of a direct channel as sessions map them, honest or not: they can write their pages as they like.
#pragma once

#include <sys/mman.h>

#include <string>

#include "daemon/service/verbs/verbs.h"
#include "proto/boundary/layouts/direct_channel.h"

namespace arraybridge {

// One part, mapped.
class DirectPartOf {
 public:
  DirectPartOf(Verbs& verbs, const Caller& caller, uint64_t end, v1::BrowseRequest::Part part, uint64_t bytes, int how)
      : bytes_(bytes) {
    v1::BrowseRequest request;
    request.set_channel(end);
    request.set_part(part);
    const auto answer = verbs.arenas.Browse(caller, request);
    AB_CHECK(answer.ok());
    base_ = ::mmap(nullptr, bytes, how, MAP_SHARED, answer->descriptor.get(), 0);
    AB_CHECK(base_ != MAP_FAILED);
  }
  ~DirectPartOf() { ::munmap(base_, bytes_); }
  DirectPartOf(const DirectPartOf&) = delete;
  DirectPartOf& operator=(const DirectPartOf&) = delete;
  void* base() const { return base_; }

 private:
  const uint64_t bytes_;
  void* base_ = nullptr;
};

class DirectEnds {
 public:
  DirectEnds(Verbs& verbs, const Caller& sender, uint64_t sending, const Caller& receiver, uint64_t receiving,
           uint64_t capacity)
      : capacity_(capacity),
        sent_(verbs, sender, sending, v1::BrowseRequest::DIRECT_OWN, direct_channel::BytesOfProducerPage(capacity), PROT_READ | PROT_WRITE),
        taken_(verbs, receiver, receiving, v1::BrowseRequest::DIRECT_OWN, sizeof(direct_channel::ConsumerPage),
               PROT_READ | PROT_WRITE),
        control_(verbs, sender, sending, v1::BrowseRequest::DIRECT_CONTROL, 4096, PROT_READ) {
    Map(verbs, sender, sending);
    AB_CHECK(control().opened == 0);
    Map(verbs, receiver, receiving);
  }

  direct_channel::ProducerPage& sent() { return *static_cast<direct_channel::ProducerPage*>(sent_.base()); }
  direct_channel::ConsumerPage& taken() { return *static_cast<direct_channel::ConsumerPage*>(taken_.base()); }
  const direct_channel::ControlBlock& control() const { return *static_cast<const direct_channel::ControlBlock*>(control_.base()); }
  direct_channel::Entry& entry(uint64_t index) { return direct_channel::EntriesOf(sent())[index % capacity_]; }

  // A page of `arena`, as an honest sender says it.
  void Send(const v1::Handle& arena, uint64_t page) { Send(Said(arena, page)); }
  static direct_channel::Message Said(const v1::Handle& arena, uint64_t page) {
    direct_channel::Message said;
    said.arena = arena.arena();
    said.generation = arena.generation();
    said.offset = page * 4096;
    said.size = 4096;
    return said;
  }
  void Send(const direct_channel::Message& said) {
    v1::Share share;
    v1::ArraySpec* const spec = share.mutable_specs()->add_arrays();
    spec->set_bits(8);
    spec->set_lanes(1);
    spec->set_dtype("uint8");
    spec->add_shape(static_cast<int64_t>(said.size));
    spec->set_size(said.size);
    Send(said, share.SerializeAsString());
  }
  void Send(const direct_channel::Message& said, const std::string& description) {
    const uint64_t head = sent().head;
    direct_channel::Write(entry(head), said, description);
    direct_channel::Pass(sent().head, head + 1, control());
  }
  void Take() { direct_channel::Pass(taken().tail, taken().tail + 1, control()); }

 private:
  static void Map(Verbs& verbs, const Caller& caller, uint64_t end) {
    v1::MappedRequest mapped;
    mapped.set_direct_channel_of(end);
    AB_CHECK(verbs.arenas.Mapped(caller, mapped).ok());
  }

  const uint64_t capacity_;
  DirectPartOf sent_;
  DirectPartOf taken_;
  DirectPartOf control_;
};

}  // namespace arraybridge
