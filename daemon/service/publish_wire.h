// What a Publish asks for, read where its bytes lie. It is the request that is sent most, and a message with its nested
// messages takes longer to build than the Broker takes to publish: so none is built, and what others will read of the
// share is looked through and handed on as it is.
//
// What is taken here is a v1.PublishRequest for libprotobuf too, with the same values (tests/fuzz/publish_fuzz.cc).
// Some things that libprotobuf takes are refused: specs that are said twice, groups, and fields 19000 to 19999.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "proto/boundary/result.h"

namespace arraybridge {

// Views into the bytes that were read.
struct PublishAsked {
  std::string_view bytes;  // all of them
  std::string_view ns;
  std::string_view name;
  uint64_t arena = 0;
  uint64_t arena_generation = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  std::string_view specs;  // a v1.ArraySpecs
  uint64_t arrays = 0;     // in `specs`
  bool replace = false;
  bool sealed = false;
  int32_t fence_kind = 0;
  std::string_view fence_event;
  std::string_view structure;
  std::string_view metadata;
  uint64_t channel = 0;
  uint64_t timeout_ms = 0;
  uint64_t lifetime_ms = 0;
  std::string_view note;
};

// INVALID_ARGUMENT: the bytes are no v1.PublishRequest. The single specs are not looked into.
Result<PublishAsked> ReadPublish(std::string_view bytes);
// The specs, structure and metadata of a v1.Share. INVALID_ARGUMENT as above.
Result<PublishAsked> ReadDescription(std::string_view bytes);

// Of one v1.ArraySpec, what a broker checks.
struct SpecFacts {
  uint32_t code = 0;
  uint32_t bits = 0;
  uint32_t lanes = 0;
  uint64_t rank = 0;
  uint64_t elements = 1;                   // UINT64_MAX: that many or more
  uint64_t strides = 0;                    // how many
  std::optional<int64_t> negative_extent;  // the first
  uint64_t offset = 0;
  uint64_t size = 0;
  std::string_view bytes;  // all of it
};

// The elements that strides reach, seen from the first one, both included.
struct Reach {
  int64_t lowest = 0;
  int64_t highest = 0;
};
// Reads shape and strides once more; nothing if they reach further than numbers do. REQUIRES: as many strides as
// extents, none of which is below 1; facts that came from a SpecsReader whose bytes are still there.
std::optional<Reach> ReachOf(const SpecFacts& facts);

// Reads one after the other.
class SpecsReader {
 public:
  explicit SpecsReader(std::string_view specs) : left_(specs) {}
  // INVALID_ARGUMENT: what follows is no v1.ArraySpec. REQUIRES: `specs` came from above, and there is another one.
  Result<SpecFacts> Next();

 private:
  std::string_view left_;
};

}  // namespace arraybridge
