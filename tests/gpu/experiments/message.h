// SPDX-License-Identifier: Apache-2.0
// A Message is sent between the director of an experiment and its peers: a line of words, and at most one descriptor.
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

// False if the other side has ended. The caller keeps the descriptor.
bool Send(int socket, const std::string& text, int descriptor = -1);

// Waits until `deadline`, or without a limit. nullopt: the other side has ended, or the time has expired (`late`).
std::optional<Message> Receive(int socket, std::optional<std::chrono::steady_clock::time_point> deadline = {},
                               bool* late = nullptr);

}  // namespace arraybridge::experiments
