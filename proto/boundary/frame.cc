// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/frame.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83  // Linux 6.16
#endif

namespace arraybridge {

std::string_view NameOf(Verb verb) {
  // In the order of their numbers.
  constexpr std::array<std::string_view, 23> kNames{
      "unknown", "OpenSession", "GetServerInfo", "Allocate", "Mapped",    "Publish", "Acquire",     "Export",
      "Release", "Withdraw",    "List",          "GetStats", "Redeem",    "Browse",  "OpenChannel", "CloseChannel",
      "Receive", "Ring",        "Watch",         "Inspect",  "Recovered", "Claim",   "Tier"};
  static_assert(kNames.size() == static_cast<size_t>(Verb::kLast) + 1);
  return kNames[verb <= Verb::kLast ? static_cast<size_t>(verb) : 0];
}

namespace {

// The kernel's limit is 253 descriptors per message (SCM_MAX_FD). The buffer has room for all of them, so that none is
// leaked.
constexpr size_t kScmMaxDescriptors = 253;

// Takes ownership of every descriptor in the message.
void TakeDescriptors(msghdr* message, Frame* frame) {
  for (cmsghdr* control = CMSG_FIRSTHDR(message); control != nullptr; control = CMSG_NXTHDR(message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof fd);
      if (frame->descriptor.valid()) {
        frame->more.emplace_back(fd);
      } else {
        frame->descriptor.reset(fd);
      }
    }
  }
}

// A frame up to this size is copied into one buffer, which costs less than passing two buffers to the kernel.
constexpr size_t kOnePieceMax = 1024;

ReceiveOutcome NothingReceived() {
  const bool again = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  return again ? ReceiveOutcome::kAgain : ReceiveOutcome::kClosed;
}

ReceiveOutcome Split(std::span<const std::byte> message, Frame* frame) {
  if (message.empty()) return ReceiveOutcome::kClosed;
  if (message.size() < sizeof(FrameHeader)) return ReceiveOutcome::kMalformed;
  std::memcpy(&frame->header, message.data(), sizeof(FrameHeader));
  frame->payload = {reinterpret_cast<const char*>(message.data()) + sizeof(FrameHeader),
                    message.size() - sizeof(FrameHeader)};
  return ReceiveOutcome::kFrame;
}

SendOutcome OutcomeOf(ssize_t sent) {
  if (sent >= 0) return SendOutcome::kSent;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return SendOutcome::kAgain;
  if (errno == ETOOMANYREFS) return SendOutcome::kTooManyDescriptors;
  return SendOutcome::kClosed;
}

SendOutcome SendInOnePiece(int socket, const FrameHeader& header, std::string_view payload, int flags) {
  char whole[sizeof header + kOnePieceMax];
  std::memcpy(whole, &header, sizeof header);
  payload.copy(whole + sizeof header, payload.size());
  ssize_t size = 0;
  do {
    size = ::send(socket, whole, sizeof header + payload.size(), flags);
  } while (size < 0 && errno == EINTR);
  return OutcomeOf(size);
}

}  // namespace

bool TakeNoDescriptors(int socket) {
  const int pass = 0;
  return ::setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &pass, sizeof pass) == 0;
}

bool TakesNoDescriptors(int socket) {
  int pass = 1;
  socklen_t size = sizeof pass;
  return ::getsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &pass, &size) == 0 && pass == 0;
}

ReceiveOutcome ReceivePlainFrame(int socket, std::span<std::byte> buffer, bool wait, Frame* frame) {
  *frame = Frame{};
  const ssize_t size = ::recv(socket, buffer.data(), buffer.size(), MSG_TRUNC | (wait ? 0 : MSG_DONTWAIT));
  if (size < 0) return NothingReceived();
  if (static_cast<size_t>(size) > buffer.size()) return ReceiveOutcome::kMalformed;
  return Split(buffer.first(static_cast<size_t>(size)), frame);
}

ReceiveOutcome ReceiveFrame(int socket, std::span<std::byte> buffer, bool wait, Frame* frame) {
  *frame = Frame{};
  alignas(cmsghdr) char control[CMSG_SPACE(kScmMaxDescriptors * sizeof(int))];
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
  if (size < 0) return NothingReceived();
  TakeDescriptors(&message, frame);
  if (size > 0 && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return ReceiveOutcome::kMalformed;
  return Split(buffer.first(static_cast<size_t>(size)), frame);
}

SendOutcome SendFrame(int socket, const FrameHeader& header, std::string_view payload, std::span<const int> descriptors,
                      bool wait) {
  AB_CHECK(sizeof(FrameHeader) + payload.size() <= kFrameBytesMax && descriptors.size() <= kFrameDescriptorsMax);
  const int flags = MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT);
  if (descriptors.empty() && payload.size() <= kOnePieceMax) return SendInOnePiece(socket, header, payload, flags);
  FrameHeader head = header;
  iovec parts[2] = {{&head, sizeof head}, {const_cast<char*>(payload.data()), payload.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = payload.empty() ? 1 : 2;
  alignas(cmsghdr) char control[CMSG_SPACE(kFrameDescriptorsMax * sizeof(int))] = {};
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t size = 0;
  do {
    size = ::sendmsg(socket, &message, flags);
  } while (size < 0 && errno == EINTR);
  return OutcomeOf(size);
}

}  // namespace arraybridge
