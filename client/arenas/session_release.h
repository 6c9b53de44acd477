// SPDX-License-Identifier: Apache-2.0
// A SessionRelease is a DeferredRelease that is given back on the connection that granted it.
#pragma once

#include <memory>
#include <utility>

#include "client/arenas/release_queue.h"
#include "client/memory/memory_mapper.h"
#include "client/process/reclaimer.h"
#include "client/wire/codec.h"

namespace arraybridge {

class SessionRelease : public DeferredRelease {
 public:
  // `of` keeps the session alive.
  explicit SessionRelease(std::shared_ptr<ReleaseQueue> of) : releases(std::move(of)) {}
  // Adds this object to the message for the broker.
  virtual void ReleaseInto(codec::Release& release) = 0;
  DeviceEvent::State PollDevice() final;

  const std::shared_ptr<ReleaseQueue> releases;

 protected:
  // The memory that the device uses. REQUIRES: Waits().
  virtual Mapping& Waited() = 0;
  // True if the device is not known to have finished. The bytes must then not be given back.
  bool undrained() const { return undrained_; }

 private:
  std::shared_ptr<DeviceEvent> event_;
  bool undrained_ = false;
};

// The Reclaim function for a Reclaimer that adopts only SessionReleases. Sends one message per connection.
void ReclaimSessionReleases(Reclaimer::Batch batch);

}  // namespace arraybridge
