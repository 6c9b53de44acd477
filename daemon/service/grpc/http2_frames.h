// SPDX-License-Identifier: Apache-2.0
// Http2Frames finds the frames in one direction of an HTTP/2 connection. It is given the bytes in the pieces in which
// they are read or written, and keeps no more of them than the header of one frame.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace arraybridge::daemon {

// The header of a frame (RFC 9113, 4.1).
struct Http2Frame {
  enum Type : uint8_t {
    kData = 0,
    kHeaders = 1,
    kResetStream = 3,
    kSettings = 4,
    kPing = 6,
    kWindowUpdate = 8,
    kContinuation = 9,
  };
  static constexpr uint8_t kAck = 1;        // of SETTINGS and PING
  static constexpr uint8_t kEndStream = 1;  // of DATA and HEADERS
  static constexpr uint8_t kEndHeaders = 4;

  uint32_t bytes = 0;  // of the payload
  uint8_t type = 0;
  uint8_t flags = 0;
  uint32_t stream = 0;  // 0: the connection

  bool Has(uint8_t flag) const { return (flags & flag) != 0; }
};

class Http2Frames {
 public:
  static constexpr size_t kHeaderBytes = 9;
  static constexpr size_t kPrefaceBytes = 24;  // of a client, before its first frame

  explicit Http2Frames(size_t preface_bytes = 0) : skipped_(preface_bytes) {}

  // The next frame whose header ends in `bytes`; takes the bytes up to there. Nullopt: it has taken all.
  std::optional<Http2Frame> Next(std::span<const uint8_t>& bytes) {
    const size_t skipped = std::min(skipped_, bytes.size());
    skipped_ -= skipped;
    bytes = bytes.subspan(skipped);
    const size_t taken = std::min(kHeaderBytes - held_, bytes.size());
    std::copy_n(bytes.begin(), taken, header_.begin() + held_);
    held_ += taken;
    bytes = bytes.subspan(taken);
    if (held_ < kHeaderBytes) return std::nullopt;
    held_ = 0;
    const Http2Frame frame = Header();
    skipped_ = frame.bytes;
    return frame;
  }

 private:
  Http2Frame Header() const {
    const auto at = [this](size_t index) { return uint32_t{header_[index]}; };
    return {at(0) << 16 | at(1) << 8 | at(2), header_[3], header_[4],
            (at(5) & 0x7f) << 24 | at(6) << 16 | at(7) << 8 | at(8)};
  }

  size_t skipped_;  // bytes before the next header: the rest of a payload
  std::array<uint8_t, kHeaderBytes> header_{};
  size_t held_ = 0;
};

}  // namespace arraybridge::daemon
