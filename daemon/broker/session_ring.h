// A SessionRing is the publish ring of one session, and where it publishes to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/broker/ids.h"
#include "daemon/memory/ring.h"

namespace arraybridge {

struct SessionRing {
  SessionId session{};
  uint32_t uid = 0;    // the session's
  uint32_t owner = 0;  // the namespace's
  std::string ns;
  std::shared_ptr<PublishRing> ring;  // never null
};

}  // namespace arraybridge
