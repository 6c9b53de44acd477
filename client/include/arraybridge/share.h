// What a client knows about a published share: values only. The bytes are an Acquired (array.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <arraybridge/array_spec.h>

namespace arraybridge {

struct Share {
  uint64_t id = 0;        // within one life of the broker
  std::string broker_id;  // 16 bytes: which life
  std::string ns;
  std::string name;
  uint64_t generation = 0;
  std::vector<ArraySpec> arrays;
  uint64_t size = 0;  // bytes
  Device device;
  HandleKind kind = HandleKind::kMemfd;  // how its memory comes to this process
  Immutability immutability = Immutability::kByContract;
  std::string structure;  // opaque bytes of the tree that the arrays came from
  std::string metadata;   // the user's bytes
  bool unnamed = false;
};

// How a share is asked for: by name, or by id.
struct ShareRef {
  std::string name{};  // if `id` is 0
  uint64_t id = 0;
  uint64_t generation = 0;  // 0: the newest
  std::string broker_id{};  // with an id: of which life it is; in another life it is NOT_FOUND. Empty: of this one
};

}  // namespace arraybridge
