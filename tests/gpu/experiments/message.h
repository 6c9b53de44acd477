// A Message is what the director of an experiment and its peers say to each other: a line of words, and at most one
// descriptor.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "proto/boundary/unique_fd.h"

namespace arraybridge::experiments {

struct Message {
  std::string text;
  UniqueFd descriptor;
};

inline constexpr size_t kMessageBytesMax = 16 * 1024;

// False if nobody listens any more. The descriptor stays the caller's.
bool Send(int socket, const std::string& text, int descriptor = -1);

// Waits until `deadline`, or for ever without one. Nothing: the other side has gone, or the time is up (`late`).
std::optional<Message> Receive(int socket, std::optional<std::chrono::steady_clock::time_point> deadline = {},
                               bool* late = nullptr);

}  // namespace arraybridge::experiments
