// SPDX-License-Identifier: Apache-2.0
#include "daemon/keeper/notice.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace arraybridge::daemon {
namespace {

// The first line of `text`, which is then without it.
std::string_view TakeLine(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return line;
}

}  // namespace

bool Notice::Receive(int socket) {
  CloseDescriptors();
  sender_ = 0;
  iovec part{text_.data(), text_.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(kDescriptorsMax * sizeof(int))> control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) return false;
  size_ = static_cast<size_t>(size);
  is_cut_ = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr; each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET) continue;
    const size_t bytes = each->cmsg_len - CMSG_LEN(0);
    if (each->cmsg_type == SCM_RIGHTS) {
      count_ = bytes / sizeof(int);
      std::memcpy(descriptors_.data(), CMSG_DATA(each), count_ * sizeof(int));
    } else if (each->cmsg_type == SCM_CREDENTIALS && bytes == sizeof(ucred)) {
      ucred credentials;
      std::memcpy(&credentials, CMSG_DATA(each), sizeof credentials);
      sender_ = credentials.pid;
    }
  }
  return true;
}

bool Notice::Has(std::string_view line) const {
  for (std::string_view left = text(); !left.empty();) {
    if (TakeLine(&left) == line) return true;
  }
  return false;
}

std::string_view Notice::ValueOf(std::string_view key) const {
  for (std::string_view left = text(); !left.empty();) {
    const std::string_view line = TakeLine(&left);
    if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == '=')
      return line.substr(key.size() + 1);
  }
  return {};
}

void Notice::CloseDescriptors() {
  for (const int fd : descriptors()) ::close(fd);
  count_ = 0;
}

}  // namespace arraybridge::daemon
