// The layout of a session's two pages, a queue in each direction (spsc_queue.h): requests from the client, completions
// from the daemon. Every request has an id; its completion carries the same id, in any order.
//
// A waited request has one completion, here or, if it is longer than the room there is, as a frame on the socket. An
// unwaited request has a completion only if it fails, and that stands here before `served` passes the request. A
// request that is longer than kPayloadBytesMax, or carries a descriptor, is sent as a frame first; an entry with
// kOnSocket then holds its place, so that requests are served in the order of this queue alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "proto/boundary/layouts/spsc_queue.h"

namespace arraybridge::session_queue {

inline constexpr uint32_t kMajor = 1;  // another major cannot be read
inline constexpr uint32_t kMinor = 0;  // another minor has fields more at the end

struct Format {
  static constexpr uint64_t kSlotWords = 16;
  static constexpr uint64_t kSlots = 256;
  static constexpr uint64_t kHeaderWords = 2;
  static constexpr uint64_t kPayloadBytesMax = 4064;
  static constexpr uint64_t kEntryWordsMax = kHeaderWords + kPayloadBytesMax / 8;

  static constexpr uint64_t WordsOf(uint64_t first_word) {
    const uint64_t bytes = first_word >> 48;
    return bytes > kPayloadBytesMax ? 0 : WordsOfPayload(bytes);
  }
  static constexpr uint64_t WordsOfPayload(uint64_t bytes) { return kHeaderWords + (bytes + 7) / 8; }
};

enum Flag : uint16_t {
  kUnwaited = 1,   // a completion comes only for a failure
  kOnSocket = 2,   // the payload is the next frame on the socket
  kBackedOff = 4,  // the client does not spin, so that yielding for it is in vain
};

struct Header {
  uint16_t verb;
  uint16_t flags;
  uint16_t status;  // of a completion: a Code
  uint16_t bytes;   // of the payload
  uint64_t id;
};
static_assert(sizeof(Header) == 8 * Format::kHeaderWords && offsetof(Header, bytes) == 6);

// Before the queue: what a daemon that takes this session over has to know.
struct Preamble {
  uint32_t major;
  uint32_t minor;
  uint64_t nonce;        // the session's; the same in both pages
  uint64_t answered_id;  // shared: of the last completion that was written; the daemon's page alone
};

// Written by one side, read by the other.
struct Page {
  Preamble preamble;
  spsc::Progress progress;
  alignas(128) spsc::Slots<Format> slots;
};
static_assert(offsetof(Page, progress) == 128 && offsetof(Page, slots) == 512 && sizeof(Page) == 512 + 32 * 1024);

// A copied entry as both sides read it.
using Entry = spsc::Reader<Format>::Entry;

inline Header HeaderOf(const Entry& entry) {
  Header header;
  std::memcpy(&header, entry.data(), sizeof header);
  return header;
}
inline std::string_view PayloadOf(const Entry& entry) {
  return {reinterpret_cast<const char*>(entry.data() + Format::kHeaderWords), HeaderOf(entry).bytes};
}

// Fills `entry`, and returns its length in words. REQUIRES: payload.size() <= kPayloadBytesMax.
inline uint64_t Encode(Header header, std::string_view payload, Entry& entry) {
  header.bytes = static_cast<uint16_t>(payload.size());
  const uint64_t words = Format::WordsOfPayload(payload.size());
  entry[words - 1] = 0;
  std::memcpy(entry.data(), &header, sizeof header);
  std::memcpy(entry.data() + Format::kHeaderWords, payload.data(), payload.size());
  return words;
}

}  // namespace arraybridge::session_queue
