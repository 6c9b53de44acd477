// SPDX-License-Identifier: Apache-2.0
// The HeldDescriptors are what the keeper holds for the daemon: descriptors with names, in the order of their arrival.
// All memory is part of the object.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "daemon/keeper/closing.h"

namespace arraybridge::daemon {

class HeldDescriptors {
 public:
  static constexpr size_t kEntriesMax = 8192;
  static constexpr size_t kNameBytesMax = 31;
  // Of all names with their separators. Linux refuses to execute a program with 128 KiB in one variable.
  static constexpr size_t kNamesBytesMax = 120 << 10;

  struct Entry {
    int fd = -1;
    bool is_passed = false;  // the keeper was started with it: it is never removed
    bool is_watched = false;
    uint64_t id = 0;  // not 0; never used twice
    uint8_t name_bytes = 0;
    std::array<char, kNameBytesMax> name_text{};

    std::string_view name() const { return {name_text.data(), name_bytes}; }
  };
  enum class Outcome { kHeld, kMerged, kBadName, kFull };

  // `epoll`: reports entries whose other end has closed, with their ids. `closing` outlives the object.
  HeldDescriptors(int epoll, Closing& closing) : epoll_(epoll), closing_(closing) {}

  // Takes the descriptor; closes it unless it is held. A descriptor of the same open file under the same name is merged
  // with the earlier one. `drops_on_hangup`: only for descriptors that can be polled.
  Outcome Add(std::string_view name, int fd, bool drops_on_hangup, bool is_passed = false);
  // Closes all entries of this name.
  void Remove(std::string_view name);
  void RemoveHungUp(uint64_t id);

  std::span<const Entry> entries() const { return {entries_.data(), count_}; }
  // The names, joined by colons, for $LISTEN_FDNAMES. Valid until the next call.
  const char* JoinedNames();

 private:
  void RemoveAt(size_t index);
  void Close(int fd, bool is_watched);

  const int epoll_;
  Closing& closing_;
  size_t count_ = 0;
  size_t names_bytes_ = 0;
  uint64_t last_id_ = 0;
  std::array<Entry, kEntriesMax> entries_{};
  std::array<char, kNamesBytesMax + 1> joined_{};
};

}  // namespace arraybridge::daemon
