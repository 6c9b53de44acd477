// SPDX-License-Identifier: Apache-2.0
// The layout of a session's two pages, a queue in each direction (spsc_queue.h): the client writes requests, the daemon
// writes completions. Every request has an id; its completion has the same id. Completions come in any order.
//
// A waited request has one completion. A completion that carries a descriptor or does not fit is a frame on the socket;
// a completion with kOnSocket may then tell a spinning client to read the socket. An unwaited publish has a completion
// only if it fails; it has one slot and is written before `served` passes the publish. Other unwaited requests have no
// completion. A request that is longer than kPayloadBytesMax is first sent as a frame; an entry with kOnSocket then
// marks its place, so that this queue alone determines the order of requests. There is one exception: an unwaited
// publish may pass waited requests, because they come from other threads, whose order is not defined.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "proto/boundary/layouts/born/figures.h"
#include "proto/boundary/layouts/spsc_queue.h"

namespace arraybridge::session_queue {

inline constexpr uint32_t kMajor = 1;  // a different major version cannot be read
inline constexpr uint32_t kMinor = 0;  // a higher minor version has more fields at the end

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
  kUnwaited = 1,      // request: no completion on success; completion: of such a request
  kOnSocket = 2,      // request: the payload is the next frame on the socket; completion: the answer is there
  kBackedOff = 4,     // request: the client does not spin, so yielding to it is useless
  kDeadline = 8,      // request: `status` is a deadline, as in a frame (kFrameDeadline)
  kProgress = 16,     // request: as in a frame (kFrameProgress)
  kMemoryWanted = 32  // completion: as in a frame (kFrameMemoryWanted)
};

struct Header {
  uint8_t verb;
  uint8_t flags;
  uint16_t bytes;   // of the payload
  uint32_t status;  // completion: a Code; request: a deadline, if kDeadline
  uint64_t id;
};
static_assert(sizeof(Header) == 8 * Format::kHeaderWords && offsetof(Header, bytes) == 2);

// The preamble before the queue: what another daemon needs to take the session over.
struct Preamble {
  uint32_t major;
  uint32_t minor;
  uint64_t nonce;        // identifies the session; the same in both pages
  uint64_t answered_id;  // shared: id of the last completion; only in the daemon's page
  // Shared, only in the daemon's page: slots of the requests up to which unwaited publishes have been served. An
  // unwaited request of another verb may still stand before it, so that the next daemon serves it if this one dies.
  uint64_t published;
  born::Figures born;  // shared, only in the client's page
};

// One side writes the page, the other side reads it.
struct Page {
  Preamble preamble;
  spsc::Progress progress;
  alignas(128) std::array<uint64_t, spsc::QueueWords<Format>()> slots;
};
static_assert(offsetof(Page, progress) == 128 && offsetof(Page, slots) == 512 && sizeof(Page) == 512 + 32 * 1024);

// A copy of an entry, which both sides read in this form.
using Entry = spsc::Entry<Format>;

// The payload bytes that fit into an entry of one slot.
inline constexpr uint64_t kOneSlotBytes = 8 * (Format::kSlotWords - Format::kHeaderWords);

inline Header HeaderOf(const Entry& entry) {
  Header header;
  std::memcpy(&header, entry.data(), sizeof header);
  return header;
}
inline std::string_view PayloadOf(const Entry& entry) {
  return {reinterpret_cast<const char*>(entry.data() + Format::kHeaderWords), HeaderOf(entry).bytes};
}

// Fills `entry` and returns its length in words. REQUIRES: payload.size() <= kPayloadBytesMax.
inline uint64_t Encode(Header header, std::string_view payload, Entry& entry) {
  header.bytes = static_cast<uint16_t>(payload.size());
  const uint64_t words = Format::WordsOfPayload(payload.size());
  entry[words - 1] = 0;
  std::memcpy(entry.data(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(entry.data() + Format::kHeaderWords, payload.data(), payload.size());
  return words;
}

}  // namespace arraybridge::session_queue
