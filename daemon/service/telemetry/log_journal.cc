// SPDX-License-Identifier: Apache-2.0
// A field is NAME=value and a newline (https://systemd.io/JOURNAL_NATIVE_PROTOCOL). A Printable value has no newline.
#include "daemon/service/telemetry/log_journal.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "proto/boundary/text.h"

namespace arraybridge::daemon::log {
namespace {

constexpr size_t kMessageBytesMax = 8192;  // well below the maximum size of a datagram
constexpr std::string_view kOwnFields = "ARRAYBRIDGE_";
constexpr int kWarning = 4;

void Add(std::string* datagram, std::string_view name, std::string_view value) {
  *datagram += name;
  *datagram += '=';
  *datagram += value;
  *datagram += '\n';
}

std::string Upper(std::string_view name) {
  std::string upper(kOwnFields);
  for (const char c : name) upper += static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return upper;
}

}  // namespace

Result<std::unique_ptr<Journal>> Journal::At(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(name.sun_path)) {
    return InvalidArgument("the journal's socket has a path of 1 to ", sizeof(name.sun_path) - 1, " bytes");
  }
  std::memcpy(name.sun_path, path.data(), path.size());
  UniqueFd socket{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!socket.valid() || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
    return Unavailable("the journal cannot be reached: ", std::strerror(errno));
  }
  return std::unique_ptr<Journal>(new Journal(std::move(socket)));
}

bool Journal::IsStandardError() {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  unsigned long device = 0;
  unsigned long inode = 0;
  struct stat found {};
  if (stream == nullptr || std::sscanf(stream, "%lu:%lu", &device, &inode) != 2) return false;
  return ::fstat(STDERR_FILENO, &found) == 0 && found.st_dev == device && found.st_ino == inode;
}

bool Journal::Write(int priority, std::string_view message, const About& about) {
  if (dropped_ > 0) {
    const std::string text = Concat(dropped_, " lines were dropped: the journal did not accept them");
    if (!Send(kWarning, text, {Topic::kLinesDropped, {{"dropped", std::to_string(dropped_)}}})) {
      ++dropped_;
      return false;
    }
    dropped_ = 0;
  }
  const bool sent = Send(priority, message, about);
  if (!sent) ++dropped_;
  return sent;
}

bool Journal::Send(int priority, std::string_view message, const About& about) {
  const TopicFacts& topic = FactsOf(about.topic);
  std::string datagram;
  Add(&datagram, "MESSAGE", message.substr(0, kMessageBytesMax));
  Add(&datagram, "PRIORITY", std::to_string(priority));
  Add(&datagram, "SYSLOG_IDENTIFIER", "arraybridged");
  if (!topic.message_id.empty()) Add(&datagram, "MESSAGE_ID", topic.message_id);
  if (!topic.name.empty()) Add(&datagram, "ARRAYBRIDGE_EVENT", topic.name);
  for (const auto& [name, value] : about.fields) Add(&datagram, Upper(name), Printable(value));
  return ::send(socket_.get(), datagram.data(), datagram.size(), MSG_NOSIGNAL) >= 0;
}

}  // namespace arraybridge::daemon::log
