// A Share is what a client knows about a published share. A value type; its bytes are an Acquired (array.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <arraybridge/array_spec.h>

namespace arraybridge {

struct Share {
  uint64_t id = 0;        // unique within one run of the broker
  std::string broker_id;  // 16 bytes that identify the run of the broker
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

// Refers to a share by name or by id.
struct ShareRef {
  std::string name{};  // used if `id` is 0
  uint64_t id = 0;
  uint64_t generation = 0;  // 0: the newest
  std::string broker_id{};  // with an id: its run of the broker; NOT_FOUND in any other run. Empty: the present run
};

}  // namespace arraybridge
