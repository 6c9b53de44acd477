// SessionRelease are DeferredRelease that are given back on the connection from which it came.
#pragma once

#include <memory>
#include <utility>

#include "client/codec.h"
#include "client/memory/memory_mapper.h"
#include "client/reclaimer.h"
#include "client/release_queue.h"

namespace arraybridge {

class SessionRelease : public DeferredRelease {
 public:
  // `of`: keeps its session alive.
  explicit SessionRelease(std::shared_ptr<ReleaseQueue> of) : releases(std::move(of)) {}
  // Adds what the broker must be told.
  virtual void GiveBack(codec::Release& release) = 0;
  DeviceEvent::State PollDevice() final;

  const std::shared_ptr<ReleaseQueue> releases;

 protected:
  // The memory on which the device works. REQUIRES: Waits().
  virtual Mapping& Waited() = 0;
  // The device is not known to have ended its work: the bytes must not be given back.
  bool undrained() const { return undrained_; }

 private:
  std::shared_ptr<DeviceEvent> event_;
  bool undrained_ = false;
};

// The Reclaim of a Reclaimer that adopts SessionReleases alone: one message for each connection.
void ReclaimSessionReleases(Reclaimer::Batch batch);

}  // namespace arraybridge
