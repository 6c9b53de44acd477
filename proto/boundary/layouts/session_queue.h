// The layout of a session's two pages, a queue in each direction (spsc_queue.h): requests from the client, completions
// from the daemon. Every request has an id; its completion carries the same id, in any order.
//
// A waited request has one completion. If it carries a descriptor, or is longer than the room there is, it is a frame
// on the socket; a completion with kOnSocket may then tell a client that spins to read it. An unwaited publish has a
// completion only if it fails, of one slot, which is written before `served` passes the publish; other unwaited
// requests have none. A request that is longer than kPayloadBytesMax is sent as a frame first; an entry with kOnSocket
// then holds its place, so that requests are served in the order of this queue alone. But an unwaited publish may pass
// waited requests, which are other threads': these say nothing about its order.
#pragma once

#include <array>
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
    const uint64_t bytes = (first_word >> 16) & 0xFFFF;
    return bytes > kPayloadBytesMax ? 0 : WordsOfPayload(bytes);
  }
  static constexpr uint64_t WordsOfPayload(uint64_t bytes) { return kHeaderWords + (bytes + 7) / 8; }
};

enum Flag : uint8_t {
  kUnwaited = 1,      // request: success is not answered; completion: of such a request
  kOnSocket = 2,      // request: the payload is the next frame on the socket; completion: so is the answer
  kBackedOff = 4,     // request: the client does not spin, so that yielding for it is in vain
  kDeadline = 8,      // request: `status` is a deadline, as in a frame (kFrameDeadline)
  kProgress = 16,     // request: as in a frame (kFrameProgress)
  kMemoryWanted = 32  // completion: as in a frame (kFrameMemoryWanted)
};

struct Header {
  uint8_t verb;
  uint8_t flags;
  uint16_t bytes;   // of the payload
  uint32_t status;  // of a completion: a Code
  uint64_t id;
};
static_assert(sizeof(Header) == 8 * Format::kHeaderWords && offsetof(Header, bytes) == 2);

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
  alignas(128) std::array<uint64_t, spsc::QueueWords<Format>()> slots;
};
static_assert(offsetof(Page, progress) == 128 && offsetof(Page, slots) == 512 && sizeof(Page) == 512 + 32 * 1024);

// A copied entry as both sides read it.
using Entry = spsc::Entry<Format>;

// Payload bytes of an entry of one slot.
inline constexpr uint64_t kOneSlotBytes = 8 * (Format::kSlotWords - Format::kHeaderWords);

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
