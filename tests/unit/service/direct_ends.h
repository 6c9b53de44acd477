// SPDX-License-Identifier: Apache-2.0
// Both ends of a direct channel as sessions map them, honest or not: they can write their pages as they like.
#pragma once

#include <sys/mman.h>

#include <string>

#include "proto/boundary/layouts/direct_channel.h"
#include "tests/unit/boundary/direct_entries.h"
#include "tests/unit/service/asked.h"

namespace arraybridge::daemon {

// A page, mapped.
class MappedPage {
 public:
  MappedPage(const UniqueFd& file, uint64_t bytes, int how) : bytes_(bytes) {
    base_ = ::mmap(nullptr, bytes, how, MAP_SHARED, file.get(), 0);
    AB_CHECK(base_ != MAP_FAILED);
  }
  ~MappedPage() { ::munmap(base_, bytes_); }
  MappedPage(const MappedPage&) = delete;
  MappedPage& operator=(const MappedPage&) = delete;
  void* base() const { return base_; }

 private:
  const uint64_t bytes_;
  void* base_ = nullptr;
};

// The files of the direct channel, as an end is given them.
inline PassedFd BrowseDirect(Verbs& verbs, const Caller& caller, uint64_t end) {
  v1::BrowseRequest request;
  request.set_channel(end);
  request.set_part(v1::BrowseRequest::DIRECT_CHANNEL);
  auto answer = TestDoor(verbs).Browse(caller, request);
  AB_CHECK(answer.ok() && answer->descriptor.count() == direct_channel::kFiles);
  return std::move(answer->descriptor);
}

class DirectEnds {
 public:
  DirectEnds(Verbs& verbs, const Caller& sender, uint64_t sending, const Caller& receiver, uint64_t receiving,
             uint64_t capacity)
      : capacity_(capacity),
        producer_files_(BrowseDirect(verbs, sender, sending)),
        consumer_files_(BrowseDirect(verbs, receiver, receiving)),
        sent_(producer_files_, direct_channel::BytesOfProducerPage(capacity), PROT_READ | PROT_WRITE),
        taken_(consumer_files_, sizeof(direct_channel::ConsumerPage), PROT_READ | PROT_WRITE),
        control_(producer_files_.more()[direct_channel::kControl - 1], 4096, PROT_READ) {
    Map(verbs, sender, sending);
    AB_CHECK(control().opened == 0);
    Map(verbs, receiver, receiving);
  }

  direct_channel::ProducerPage& sent() { return *static_cast<direct_channel::ProducerPage*>(sent_.base()); }
  direct_channel::ConsumerPage& taken() { return *static_cast<direct_channel::ConsumerPage*>(taken_.base()); }
  const direct_channel::ControlBlock& control() const {
    return *static_cast<const direct_channel::ControlBlock*>(control_.base());
  }
  // The first word of an entry.
  uint64_t* entry(uint64_t count) { return direct_channel::EntryAt(sent(), capacity_, count); }

  // A pipe whose bytes wake the consumer.
  const UniqueFd& consumer_doorbell() const { return consumer_files_.more()[direct_channel::kDoorbell - 1]; }
  // A page of `arena`, as an honest sender says it.
  void Send(const v1::Handle& arena, uint64_t page) { Send(Said(arena, page)); }
  static direct_channel::Header Said(const v1::Handle& arena, uint64_t page) {
    direct_channel::Header said;
    said.arena = arena.arena();
    said.generation = arena.generation();
    said.offset = page * 4096;
    said.size = 4096;
    return said;
  }
  void Send(const direct_channel::Header& said) {
    v1::Share share;
    v1::ArraySpec* const spec = share.mutable_specs()->add_arrays();
    spec->set_bits(8);
    spec->set_lanes(1);
    spec->set_dtype("uint8");
    spec->add_shape(static_cast<int64_t>(said.size));
    spec->set_size(said.size);
    Send(said, share.SerializeAsString());
  }
  void Send(const direct_channel::Header& said, const std::string& description) {
    direct_channel::WriteEntry(sent(), capacity_, said, description);
  }
  void Take() { direct_channel::TakeEntry(taken()); }

 private:
  void Map(Verbs& verbs, const Caller& caller, uint64_t end) const {
    v1::MappedRequest mapped;
    mapped.set_direct_channel_of(end);
    mapped.set_direct_channel_number(control().number);
    AB_CHECK(TestDoor(verbs).Mapped(caller, mapped).ok());
  }

  const uint64_t capacity_;
  PassedFd producer_files_;
  PassedFd consumer_files_;
  MappedPage sent_;
  MappedPage taken_;
  MappedPage control_;
};

}  // namespace arraybridge::daemon
