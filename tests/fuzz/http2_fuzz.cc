// SPDX-License-Identifier: Apache-2.0
// Frames of an untrusted peer, in pieces of any size: Http2Frames finds the same frames in the pieces as in the whole.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "daemon/service/grpc/http2_frames.h"

namespace arraybridge::daemon {
namespace {

using Found = std::vector<std::array<uint32_t, 4>>;

void ReadInto(Found& found, Http2Frames& frames, std::span<const uint8_t> bytes) {
  while (const auto frame = frames.Next(bytes))
    found.push_back({frame->bytes, frame->type, frame->flags, frame->stream});
}

}  // namespace
}  // namespace arraybridge::daemon

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arraybridge::daemon;
  if (size < 2) return 0;
  const size_t piece = 1 + data[0];  // bytes
  const size_t preface = data[1];
  const std::span<const uint8_t> bytes(data + 2, size - 2);
  Found whole;
  Http2Frames at_once(preface);
  ReadInto(whole, at_once, bytes);
  Found found;
  Http2Frames frames(preface);
  for (size_t at = 0; at < bytes.size(); at += piece) {
    ReadInto(found, frames, bytes.subspan(at, std::min(piece, bytes.size() - at)));
  }
  if (found != whole) std::abort();
  return 0;
}
