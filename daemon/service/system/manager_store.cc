// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/manager_store.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "daemon/service/system/notify.h"
#include "daemon/service/system/passed_sockets.h"
#include "daemon/service/telemetry/log.h"
#include "proto/boundary/environment.h"

namespace arraybridge::daemon {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::milliseconds kShortPatience{100};

bool IsEntryName(std::string_view name) {
  const auto is_allowed = [](char c) { return c > ' ' && c <= '~' && c != ':'; };
  return !name.empty() && name.size() <= DescriptorStore::kEntryNameBytesMax && std::ranges::all_of(name, is_allowed);
}

bool IsLifeline(std::string_view name) { return name.starts_with('l') && PassedSockets::IsStoredName(name); }

bool IsBelowKeeper() { return NumberFromManager("KEEPER_PID") == ::getppid(); }

// A keeper that ends makes its child an orphan, so its number is not reused while it is the parent's.
UniqueFd Parent() { return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, ::getppid(), 0))); }

// Does not block. `fd`: -1 for none.
bool SendNow(int socket, std::string_view text, int fd) {
  iovec part{const_cast<char*>(text.data()), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

// False: the deadline has passed.
bool WaitFor(int fd, short events, steady_clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd polled{fd, events, 0};
    if (::poll(&polled, 1, static_cast<int>(left.count())) > 0) return true;
  }
}

Status DoesNotAnswer(std::string_view why) {
  return Unavailable("the process that keeps this broker's descriptors does not answer: ", why);
}

}  // namespace

std::unique_ptr<ManagerStore> ManagerStore::FromEnvironment(const std::vector<std::string>& received) {
  const auto entries_max = NumberFromManager("FDSTORE");
  if (!entries_max || *entries_max <= 0) return nullptr;
  UniqueFd socket = ManagerSocket();
  if (!socket.valid()) return nullptr;
  const auto room = std::min(static_cast<uint64_t>(*entries_max), kEntriesMax);
  return std::unique_ptr<ManagerStore>(new ManagerStore(std::move(socket), IsBelowKeeper(), room, received));
}

ManagerStore::ManagerStore(UniqueFd socket, bool is_below_keeper, uint64_t entries_max,
                           const std::vector<std::string>& received)
    : socket_(std::move(socket)),
      is_below_keeper_(is_below_keeper),
      keeper_(is_below_keeper ? Parent() : UniqueFd()),
      entries_max_(entries_max),
      entries_(received.size()) {
  for (const std::string& name : received) {
    ++held_[name];
    name_bytes_ += name.size() + 1;
  }
}

Status ManagerStore::Store(std::span<const Entry> entries, Until until) {
  for (const Entry& entry : entries) AB_CHECK(IsEntryName(entry.name));
  const Deadline deadline = steady_clock::now() + (until == Until::kHandled ? kPatience : kShortPatience);
  AB_RETURN_IF_ERROR(SendRemovals(deadline));  // first: one of them may have the name of a new entry
  AB_RETURN_IF_ERROR(Reserve(entries));
  for (const Entry& entry : entries) {
    const std::string_view poll = IsLifeline(entry.name) ? "" : "\nFDPOLL=0";
    AB_RETURN_IF_ERROR(Send(Concat("FDSTORE=1\nFDNAME=", entry.name, poll), entry.fd, deadline));
  }
  return until == Until::kHandled ? Barrier(deadline) : Ok();
}

Status ManagerStore::Reserve(std::span<const Entry> entries) {
  uint64_t bytes = 0;
  for (const Entry& entry : entries) bytes += entry.name.size() + 1;
  const MutexLock lock(mutex_);
  if (entries_ + entries.size() > entries_max_ || name_bytes_ + bytes > kNameBytesMax) {
    ++refused_total_;
    return ResourceExhausted("the store that keeps descriptors for the next daemon is full: ", entries_, " of ",
                             entries_max_, " entries, whose names have ", name_bytes_, " of ", kNameBytesMax,
                             " bytes, and ", entries.size(), " more are needed")
        .Because("STORE_FULL");
  }
  entries_ += entries.size();
  name_bytes_ += bytes;
  for (const Entry& entry : entries) ++held_[std::string(entry.name)];
  return Ok();
}

void ManagerStore::Remove(std::string_view name) {
  const MutexLock lock(mutex_);
  const auto found = held_.find(name);
  if (found == held_.end()) return;
  removals_.push_back({found->first, found->second});
  held_.erase(found);
  SendRemovalsNow();
}

bool ManagerStore::SendRemovalsNow() {
  while (!removals_.empty()) {
    const Removal& first = removals_.front();
    if (!has_ended_ && !SendNow(socket_.get(), Concat("FDSTOREREMOVE=1\nFDNAME=", first.name), -1)) return false;
    entries_ -= first.entries;
    name_bytes_ -= first.entries * (first.name.size() + 1);
    removals_.pop_front();
  }
  return true;
}

Status ManagerStore::SendRemovals(Deadline deadline) {
  while (true) {
    {
      const MutexLock lock(mutex_);
      if (has_ended_) return DoesNotAnswer("it has ended");
      if (SendRemovalsNow()) return Ok();
    }
    if (!WaitFor(socket_.get(), POLLOUT, deadline)) return DoesNotAnswer("its queue is full");
  }
}

Status ManagerStore::Send(std::string_view text, int fd, Deadline deadline) {
  while (!SendNow(socket_.get(), text, fd)) {
    // ETOOMANYREFS: descriptors in flight are limited for each user. Their flight ends when the holder reads them,
    // which no descriptor announces.
    const bool is_scarce = errno == ENOBUFS || errno == ETOOMANYREFS;
    if (errno != EAGAIN && !is_scarce) return DoesNotAnswer(std::strerror(errno));
    if (is_scarce) ::poll(nullptr, 0, 1);
    if (!WaitFor(socket_.get(), POLLOUT, deadline)) return DoesNotAnswer("its queue is full");
  }
  return Ok();
}

// The holder closes its end when it has handled all datagrams before this one.
Status ManagerStore::Barrier(Deadline deadline) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return ResourceExhausted("no descriptor is left to ask whether descriptors are stored").Because("DESCRIPTORS");
  }
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  AB_RETURN_IF_ERROR(Send("BARRIER=1", theirs.get(), deadline));
  theirs.reset();
  return WaitFor(ours.get(), 0, deadline) ? Ok() : DoesNotAnswer("it has not read the descriptors within 5 s");
}

DescriptorStore::Usage ManagerStore::usage() const {
  const MutexLock lock(mutex_);
  return {entries_,
          entries_max_,
          name_bytes_,
          kNameBytesMax,
          refused_total_,
          has_ended_,
          is_below_keeper_ ? Holder::kKeeper : Holder::kServiceManager};
}

std::string ManagerStore::LastEnd() const {
  constexpr size_t kBytesMax = 64;
  if (!is_below_keeper_) return "unknown (service manager)";
  const std::string last_end = Environment("KEEPER_LAST_END").substr(0, kBytesMax);
  return last_end.empty() ? "unknown" : last_end;
}

void ManagerStore::KeeperEnded() {
  const MutexLock lock(mutex_);
  has_ended_ = true;
}

bool ManagerStore::KeepsAfter(int exit_status) const {
  const MutexLock lock(mutex_);
  return !has_ended_ && (exit_status != 0 || !is_below_keeper_);
}

void StoreOrWarn(DescriptorStore* store, std::string_view name, int fd, std::string_view what) {
  if (store == nullptr) return;
  const DescriptorStore::Entry entry{name, fd};
  if (const Status stored = store->Store({&entry, 1}); !stored.ok()) {
    log::Warn("{} is not kept while the broker restarts: {}", what, stored.message());
  }
}

}  // namespace arraybridge::daemon
