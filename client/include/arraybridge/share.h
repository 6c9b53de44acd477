// SPDX-License-Identifier: Apache-2.0
// A Share is what a client knows about a published share. A value type; its bytes are an Acquired (array.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <arraybridge/array_spec.h>

namespace arraybridge {

struct Share {
  uint64_t id = 0;        // unique within one run of the broker
  std::string broker_id;  // 16 bytes; the same in all daemons that continue one another
  std::string ns;
  std::string name;
  uint64_t generation = 0;
  std::vector<ArraySpec> arrays;
  uint64_t size = 0;  // bytes
  Device device;
  HandleKind kind = HandleKind::kMemfd;  // how this process opens its memory
  Immutability immutability = Immutability::kByContract;
  std::string structure;  // opaque bytes that describe the tree of the arrays
  std::string metadata;   // opaque bytes of the user
  bool unnamed = false;
};

struct Sender {
  uint64_t process_id = 0;  // in the broker's PID namespace; 0: unknown
  std::string client;       // its name for display
};

// How a share came into the channel from which it was received.
struct Sent {
  uint64_t sequence = 0;  // the first share that was ever sent into the channel has 1; 0: it came from no channel
  uint64_t stream = 0;    // the stream in which it was sent
  uint64_t time_ns = 0;   // when: nanoseconds of CLOCK_BOOTTIME, as the sender's process tells in a direct channel
  std::shared_ptr<const Sender> sender{};  // null only if it came from no channel
};

// Refers to a share by name or by id.
struct ShareRef {
  std::string name{};  // used if `id` is 0
  uint64_t id = 0;
  uint64_t generation = 0;  // 0: the newest
  // The run of the broker that the id, or newer_than, belongs to; empty: the present run. In another run an id is
  // NOT_FOUND, and every generation is newer.
  std::string broker_id{};
  uint64_t newer_than = 0;  // with a name: only a share of a greater generation, which an Acquire waits for
};

}  // namespace arraybridge
