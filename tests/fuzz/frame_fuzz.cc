// SPDX-License-Identifier: Apache-2.0
// Frames of an untrusted peer: ReceiveFrame gets any bytes with any number of descriptors. No descriptor may leak, and
// a result of kFrame must be a valid frame.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <vector>

#include "proto/boundary/frame.h"
#include "proto/boundary/unique_fd.h"
#include "tests/fuzz/input.h"

namespace arraybridge {
namespace {

constexpr size_t kDescriptorsMost = 8;

// The lowest free descriptor; it grows if a descriptor leaks.
int LowestFree() {
  const UniqueFd probe(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return probe.get();
}

// Sends raw bytes with `count` descriptors. An empty datagram would mean the end of the stream and is not sent.
bool SendRaw(int socket, std::string_view bytes, size_t count) {
  static const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMost * sizeof(int))] = {};
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (size_t i = 0; i < count; ++i) std::memcpy(CMSG_DATA(header) + i * sizeof(int), &null, sizeof null);
  }
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

void ReceiveOne(Input& input) {
  static std::vector<std::byte> buffer(kFrameBytesMax);
  int pair[2];
  AB_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
  const UniqueFd ours(pair[0]);
  const UniqueFd theirs(pair[1]);
  const size_t descriptors = input.Take<uint8_t>() % (kDescriptorsMost + 1);
  const std::string_view bytes = input.TakeBytes(input.Take<uint16_t>());
  if (bytes.empty() || !SendRaw(theirs.get(), bytes, descriptors)) return;

  Frame frame;
  const ReceiveOutcome outcome = ReceiveFrame(ours.get(), buffer, false, &frame);
  AB_CHECK(outcome == ReceiveOutcome::kFrame || outcome == ReceiveOutcome::kMalformed);
  AB_CHECK((outcome == ReceiveOutcome::kFrame) == (bytes.size() >= sizeof(FrameHeader)));
  if (outcome != ReceiveOutcome::kFrame) return;
  AB_CHECK(frame.payload == bytes.substr(sizeof(FrameHeader)));
  AB_CHECK(std::memcmp(&frame.header, bytes.data(), sizeof(FrameHeader)) == 0);
  AB_CHECK(frame.descriptors() == descriptors && frame.descriptor.valid() == (descriptors > 0));
}

}  // namespace
}  // namespace arraybridge

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  arraybridge::Input input(data, size);
  static const int lowest = (arraybridge::ReceiveOne(input), arraybridge::LowestFree());
  while (!input.empty()) arraybridge::ReceiveOne(input);
  AB_CHECK(arraybridge::LowestFree() == lowest);
  return 0;
}
