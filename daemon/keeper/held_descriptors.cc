// SPDX-License-Identifier: Apache-2.0
#include "daemon/keeper/held_descriptors.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace arraybridge::daemon {
namespace {

bool IsName(std::string_view name) {
  const auto is_allowed = [](char c) { return c > ' ' && c <= '~' && c != ':'; };
  return !name.empty() && name.size() <= HeldDescriptors::kNameBytesMax && std::ranges::all_of(name, is_allowed);
}

// Whether both refer to the same open file. A container may forbid kcmp; two openings of one file that have the same
// flags are then taken for one.
bool IsSameFile(int one, int other) {
  const pid_t self = ::getpid();
  const long compared = ::syscall(SYS_kcmp, self, self, KCMP_FILE, one, other);
  if (compared >= 0) return compared == 0;
  struct stat first {};
  struct stat second {};
  if (::fstat(one, &first) != 0 || ::fstat(other, &second) != 0) return false;
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino &&
         ::fcntl(one, F_GETFL) == ::fcntl(other, F_GETFL);
}

}  // namespace

HeldDescriptors::Outcome HeldDescriptors::Add(std::string_view name, int fd, bool drops_on_hangup, bool is_passed) {
  const auto refused = [&](Outcome outcome) {
    Close(fd, drops_on_hangup);
    return outcome;
  };
  if (!IsName(name)) return refused(Outcome::kBadName);
  for (const Entry& each : entries()) {
    if (each.name() == name && IsSameFile(each.fd, fd)) return refused(Outcome::kMerged);
  }
  if (count_ == kEntriesMax || names_bytes_ + name.size() + 1 > kNamesBytesMax) return refused(Outcome::kFull);
  Entry& added = entries_[count_++];
  added = Entry{.fd = fd, .is_passed = is_passed, .id = ++last_id_, .name_bytes = static_cast<uint8_t>(name.size())};
  std::memcpy(added.name_text.data(), name.data(), name.size());
  names_bytes_ += name.size() + 1;
  if (drops_on_hangup) {
    epoll_event hangup{};  // errors and hang-ups are always reported
    hangup.data.u64 = added.id;
    added.is_watched = ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &hangup) == 0;  // memory cannot be polled
  }
  return Outcome::kHeld;
}

void HeldDescriptors::Remove(std::string_view name) {
  for (size_t i = count_; i > 0; --i) {
    if (entries_[i - 1].name() == name && !entries_[i - 1].is_passed) RemoveAt(i - 1);
  }
}

void HeldDescriptors::RemoveHungUp(uint64_t id) {
  for (size_t i = 0; i < count_; ++i) {
    if (entries_[i].id == id) return RemoveAt(i);
  }
}

void HeldDescriptors::RemoveAt(size_t index) {
  const Entry& removed = entries_[index];
  // Closing does not end the watch while the daemon has the same file open.
  if (removed.is_watched) ::epoll_ctl(epoll_, EPOLL_CTL_DEL, removed.fd, nullptr);
  Close(removed.fd, removed.is_watched);
  names_bytes_ -= removed.name_bytes + 1u;
  std::move(entries_.begin() + index + 1, entries_.begin() + count_, entries_.begin() + index);
  --count_;
}

// Only clients' connections are watched.
void HeldDescriptors::Close(int fd, bool is_watched) {
  if (is_watched) {
    closing_.CloseSocket(fd);
  } else {
    closing_.Close(fd);
  }
}

const char* HeldDescriptors::JoinedNames() {
  char* end = joined_.data();
  for (const Entry& each : entries()) {
    if (end != joined_.data()) *end++ = ':';
    end = std::copy_n(each.name_text.data(), each.name_bytes, end);
  }
  *end = '\0';
  return joined_.data();
}

}  // namespace arraybridge::daemon
