// SPDX-License-Identifier: Apache-2.0
// Numbers that must not be swapped get types of their own.
#pragma once

#include <cstdint>

namespace arraybridge::daemon {

enum class SessionId : uint64_t {};
enum class ArenaId : uint64_t {};
enum class ShareId : uint64_t {};
enum class LeaseId : uint64_t {};
enum class ChannelId : uint64_t {};
enum class ChannelEndId : uint64_t {};
enum class WatcherId : uint64_t {};

template <class Id>
constexpr uint64_t Number(Id id) {
  return static_cast<uint64_t>(id);
}

}  // namespace arraybridge::daemon
