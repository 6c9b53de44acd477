// SPDX-License-Identifier: Apache-2.0
// A BornMapping maps an arena of which a framework's arrays are made. In contrast to other arenas, unpublished arrays
// in it are written for as long as they live, so a fork must separate the parent's later writes from what its child
// sees. An array can be written even after it was published, if its own part of the mapping is private.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "client/memory/memory_mapper.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

class BornMapping final : public Mapping {
 public:
  // `reader`: a read-only descriptor of the arena's file.
  BornMapping(std::unique_ptr<Mapping> mapping, UniqueFd reader)
      : mapping_(std::move(mapping)), reader_(std::move(reader)) {}
  ~BornMapping() override;

  // Before a fork: from now on writes of this process, and of its children, reach neither the broker's memory nor each
  // other. False: the kernel has no room for the mapping; nothing has changed. Idempotent.
  bool MakePrivate() noexcept AB_EXCLUDES(mutex_);
  bool is_private() const { return private_; }
  // The same of one part: from now on the writes of this process there are its own. False: the kernel has no room, or
  // cannot do it; nothing has changed. REQUIRES: whole pages, of no such part; no fork happens meanwhile.
  bool Part(uint64_t offset, uint64_t bytes) noexcept AB_EXCLUDES(mutex_);
  // Maps the broker's memory there again, without the writes since Part. False: the part stays private, because
  // the kernel has no room, or all of the mapping is private. REQUIRES: there is a part at `offset`.
  bool Join(uint64_t offset) noexcept AB_EXCLUDES(mutex_);
  // Nothing is carved from the arena any more, so that its blocks are not kept when they are freed.
  void Abandon() { abandoned_ = true; }
  bool is_abandoned() const { return abandoned_; }

  std::byte* data() const override { return mapping_->data(); }
  uint64_t size() const override { return mapping_->size(); }
  Status CopyFrom(const View& source, uint64_t offset) override { return mapping_->CopyFrom(source, offset); }
  std::shared_ptr<DeviceEvent> Now() override { return mapping_->Now(); }
  void NoteIdle() override { mapping_->NoteIdle(); }
  // Another private mapping would lose what was written since the first one.
  void Detach() noexcept override {
    if (!private_) mapping_->Detach();
  }

 private:
  // The broker's memory of a part, mapped elsewhere: once an arena is sealed, it cannot be mapped writable anew.
  struct Shared {
    void* base = nullptr;
    uint64_t bytes = 0;
  };

  bool MapPrivate(uint64_t offset, uint64_t bytes) noexcept;

  const std::unique_ptr<Mapping> mapping_;
  UniqueFd reader_;
  bool private_ = false;
  bool abandoned_ = false;  // guarded by the heap's lock
  Mutex mutex_;
  std::map<uint64_t, Shared> parts_ AB_GUARDED_BY(mutex_);  // by their offsets
};

}  // namespace arraybridge
