// Both ends of a road as sessions map them, honest or not: they can write their pages as they like.
#pragma once

#include <sys/mman.h>

#include <string>

#include "daemon/service/verbs/verbs.h"
#include "proto/boundary/road_layout.h"

namespace arraybridge {

// One part, mapped.
class RoadPartOf {
 public:
  RoadPartOf(Verbs& verbs, const Caller& caller, uint64_t end, v1::BrowseRequest::Part part, uint64_t bytes, int how)
      : bytes_(bytes) {
    v1::BrowseRequest request;
    request.set_channel(end);
    request.set_part(part);
    const auto answer = verbs.arenas.Browse(caller, request);
    AB_CHECK(answer.ok());
    base_ = ::mmap(nullptr, bytes, how, MAP_SHARED, answer->descriptor.get(), 0);
    AB_CHECK(base_ != MAP_FAILED);
  }
  ~RoadPartOf() { ::munmap(base_, bytes_); }
  RoadPartOf(const RoadPartOf&) = delete;
  RoadPartOf& operator=(const RoadPartOf&) = delete;
  void* base() const { return base_; }

 private:
  const uint64_t bytes_;
  void* base_ = nullptr;
};

class RoadEnds {
 public:
  RoadEnds(Verbs& verbs, const Caller& sender, uint64_t sending, const Caller& receiver, uint64_t receiving,
           uint64_t capacity)
      : capacity_(capacity),
        sent_(verbs, sender, sending, v1::BrowseRequest::ROAD_OWN, road::BytesOfSent(capacity), PROT_READ | PROT_WRITE),
        taken_(verbs, receiver, receiving, v1::BrowseRequest::ROAD_OWN, sizeof(road::TakenPage),
               PROT_READ | PROT_WRITE),
        sign_(verbs, sender, sending, v1::BrowseRequest::ROAD_SIGN, 4096, PROT_READ) {
    Map(verbs, sender, sending);
    AB_CHECK(sign().opened == 0);
    Map(verbs, receiver, receiving);
  }

  road::SentPage& sent() { return *static_cast<road::SentPage*>(sent_.base()); }
  road::TakenPage& taken() { return *static_cast<road::TakenPage*>(taken_.base()); }
  const road::Sign& sign() const { return *static_cast<const road::Sign*>(sign_.base()); }
  road::Entry& entry(uint64_t index) { return road::EntriesOf(sent())[index % capacity_]; }

  // A page of `arena`, as an honest sender says it.
  void Send(const v1::Handle& arena, uint64_t page) { Send(Said(arena, page)); }
  static road::Message Said(const v1::Handle& arena, uint64_t page) {
    road::Message said;
    said.arena = arena.arena();
    said.generation = arena.generation();
    said.offset = page * 4096;
    said.size = 4096;
    return said;
  }
  void Send(const road::Message& said) {
    v1::Share share;
    v1::ArraySpec* const spec = share.mutable_specs()->add_arrays();
    spec->set_bits(8);
    spec->set_lanes(1);
    spec->set_dtype("uint8");
    spec->add_shape(static_cast<int64_t>(said.size));
    spec->set_size(said.size);
    Send(said, share.SerializeAsString());
  }
  void Send(const road::Message& said, const std::string& description) {
    const uint64_t head = sent().head;
    road::Write(entry(head), said, description);
    road::Pass(sent().head, head + 1, sign());
  }
  void Take() { road::Pass(taken().tail, taken().tail + 1, sign()); }

 private:
  static void Map(Verbs& verbs, const Caller& caller, uint64_t end) {
    v1::MappedRequest mapped;
    mapped.set_road_of(end);
    AB_CHECK(verbs.arenas.Mapped(caller, mapped).ok());
  }

  const uint64_t capacity_;
  RoadPartOf sent_;
  RoadPartOf taken_;
  RoadPartOf sign_;
};

}  // namespace arraybridge
