// The layout of a mailbox, and the steps that a client and the broker take on it. It is one session's: one request at a
// time, and its answer, while both sides look for them by themselves. Whoever has stopped looking is reached by the
// socket: nobody sleeps on these pages.
//
//   client                                    broker
//   1  awaited = number of the request        1  asked is another number? copy the request, taken = it (release)
//   2  request, asked = number (release)      2  the answer
//   3  fence; not awake? then wake it         3  awaited: number -> 0 (release); is 0 already? send it
//   4  looks at awaited until it is 0         4  before it sleeps: awake = 0; fence; asked is another number?
//   5  or gives up: awaited: number -> 0;     5  then it does not sleep
//      is 0 already? the answer is there
//   6  asks the next when it has the answer,
//      or when taken says that this is read
//
// `awaited` changes from a number to 0 once, by one of the two: so an answer comes by one way alone. Of the two fences
// one comes first: either the broker sees the request, or the client sees that it sleeps.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "proto/boundary/frame.h"
#include "proto/boundary/shared_word.h"

namespace arraybridge::mailbox {

inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kMessageWords = 504;
inline constexpr size_t kMessageBytesMax = kMessageWords * sizeof(uint64_t);
inline constexpr uint64_t kBySocket = ~uint64_t{0};  // instead of a size: the answer comes as a frame

// A frame but for its request's number: as FrameHeader has them, verb, flags and status; then the message.
struct Letter {
  uint64_t head;                                // shared
  uint64_t size;                                // shared: of the message, in bytes
  std::array<uint64_t, kMessageWords> message;  // shared
};

// Written by the client. A short request and everything else that changes with it is one cache line.
struct alignas(128) Page {
  uint64_t asked;    // shared: the number of the request that stands here
  uint64_t awaited;  // shared, written by both: the request whose answer is looked for here, or 0
  Letter request;
  uint32_t version;  // written by the broker before anybody else has the page
};
static_assert(sizeof(Page) == 4096 && offsetof(Page, request) == 16);

// Written by the broker.
struct alignas(128) Answers {
  uint64_t awake;  // shared: 1 while the broker looks for requests by itself
  uint64_t taken;  // shared: the number of the request that it copied last
  Letter answer;
  uint32_t version;
};
static_assert(sizeof(Answers) == 4096 && offsetof(Answers, answer) == 16);

// REQUIRES: the message has at most kMessageBytesMax bytes.
inline void Write(Letter& letter, const FrameHeader& header, std::string_view message) {
  uint64_t head;
  std::memcpy(&head, &header, sizeof head);
  Store(letter.head, head, std::memory_order_relaxed);
  Store(letter.size, message.size(), std::memory_order_relaxed);
  const size_t whole = message.size() / sizeof(uint64_t);
  for (size_t i = 0; i < whole; ++i) {
    uint64_t word;
    std::memcpy(&word, message.data() + i * sizeof word, sizeof word);
    Store(letter.message[i], word, std::memory_order_relaxed);
  }
  if (const size_t rest = message.size() % sizeof(uint64_t); rest != 0) {
    uint64_t word = 0;
    std::memcpy(&word, message.data() + whole * sizeof word, rest);
    Store(letter.message[whole], word, std::memory_order_relaxed);
  }
}

// Without the request's number.
inline FrameHeader HeadOf(const Letter& letter) {
  const uint64_t head = Load(letter.head, std::memory_order_relaxed);
  FrameHeader header{};
  std::memcpy(&header, &head, sizeof head);
  return header;
}

inline uint64_t SizeOf(const Letter& letter) { return Load(letter.size, std::memory_order_relaxed); }

// Each word is loaded once, whatever the other side does meanwhile. REQUIRES: bytes <= kMessageBytesMax.
inline void CopyMessage(const Letter& letter, size_t bytes, char* to) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = Load(letter.message[at / sizeof word], std::memory_order_relaxed);
    std::memcpy(to + at, &word, std::min(sizeof word, bytes - at));
  }
}

// Client. False: the broker does not look, and has to be woken.
inline bool Ask(Page& page, const FrameHeader& header, std::string_view message, const Answers& answers) {
  Store(page.awaited, header.request, std::memory_order_relaxed);
  Write(page.request, header, message);
  Store(page.asked, header.request, std::memory_order_release);
  ThreadFence(std::memory_order_seq_cst);
  return Load(answers.awake, std::memory_order_relaxed) != 0;
}

// Client, giving up; broker, when the answer stands in its page. Whether it was this side that ended it.
inline bool EndLook(Page& page, uint64_t request) {
  uint64_t expected = request;
  return std::atomic_ref<uint64_t>(page.awaited).compare_exchange_strong(expected, 0, std::memory_order_acq_rel);
}

// Broker. False: there is a request, so it must not sleep.
inline bool FallAsleep(Answers& answers, const Page& page, uint64_t taken) {
  Store(answers.awake, 0, std::memory_order_relaxed);
  ThreadFence(std::memory_order_seq_cst);
  return Load(page.asked, std::memory_order_relaxed) == taken;
}

}  // namespace arraybridge::mailbox
