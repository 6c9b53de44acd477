// SPDX-License-Identifier: Apache-2.0
// A Notice is one datagram that the daemon has sent to the keeper: lines KEY=VALUE, and descriptors (sd_notify).
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace arraybridge::daemon {

class Notice {
 public:
  Notice() = default;
  // Closes the descriptors that were not taken.
  ~Notice() { CloseDescriptors(); }
  Notice(const Notice&) = delete;
  Notice& operator=(const Notice&) = delete;

  // Replaces this notice by the next one. Does not block; false: there is none.
  bool Receive(int socket);

  // The process that sent it, as the kernel says; 0 if the kernel does not know it.
  pid_t sender() const { return sender_; }
  // Longer ones are cut: they are not the daemon's.
  bool is_cut() const { return is_cut_; }
  std::string_view text() const { return {text_.data(), size_}; }
  bool Has(std::string_view line) const;
  // The value in the line `key`=value; empty if there is none.
  std::string_view ValueOf(std::string_view key) const;

  std::span<const int> descriptors() const { return {descriptors_.data(), count_}; }
  // The descriptors then belong to the caller.
  void Release() { count_ = 0; }

 private:
  static constexpr size_t kTextBytesMax = 4096;   // as of systemd
  static constexpr size_t kDescriptorsMax = 253;  // of the kernel
  void CloseDescriptors();

  pid_t sender_ = 0;
  bool is_cut_ = false;
  size_t size_ = 0;
  size_t count_ = 0;
  std::array<char, kTextBytesMax> text_{};
  std::array<int, kDescriptorsMax> descriptors_{};
};

}  // namespace arraybridge::daemon
