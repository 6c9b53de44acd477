// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/experiments/message.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace arraybridge::experiments {
namespace {

// Milliseconds from now, at least 0.
int Left(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

}  // namespace

bool Send(int socket, const std::string& text, int descriptor) {
  iovec bytes{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(socket, &header, MSG_NOSIGNAL) >= 0;
}

std::optional<Message> Receive(int socket, std::optional<std::chrono::steady_clock::time_point> deadline, bool* late) {
  pollfd wanted{socket, POLLIN, 0};
  int ready = -1;
  do {
    ready = ::poll(&wanted, 1, deadline.has_value() ? Left(*deadline) : -1);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0 && late != nullptr) *late = true;
  if (ready <= 0) return {};
  std::string text(kMessageBytesMax, '\0');
  iovec bytes{text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  const ssize_t size = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  if (size <= 0) return {};
  text.resize(static_cast<size_t>(size));
  Message message{.text = std::move(text), .descriptor = {}};
  if (const cmsghdr* const rights = CMSG_FIRSTHDR(&header); rights != nullptr) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
    message.descriptor.reset(descriptor);
  }
  return message;
}

}  // namespace arraybridge::experiments
