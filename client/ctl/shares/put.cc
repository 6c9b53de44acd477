// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <utility>

#include "client/ctl/end_signals.h"
#include "client/ctl/output/print.h"
#include "client/ctl/shares/npy.h"
#include "client/ctl/shares/transfer.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::ctl {
namespace {

struct Source {
  UniqueFd file;
  uint64_t begin = 0;  // where the array's bytes begin in the file
  uint64_t bytes = 0;
  ArraySpec array;
};

// Reads [offset, offset + bytes) as far as the file reaches. Returns the number of bytes read.
Result<uint64_t> ReadAt(const UniqueFd& file, char* to, uint64_t bytes, uint64_t offset) {
  uint64_t got = 0;
  while (got < bytes) {
    const ssize_t part = ::pread(file.get(), to + got, bytes - got, static_cast<off_t>(offset + got));
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return Internal("cannot be read: ", std::strerror(errno));
    if (part == 0) break;
    got += static_cast<uint64_t>(part);
  }
  return got;
}

Result<std::string> HeadOf(const UniqueFd& file) {
  std::string start(kNpyStartBytes, '\0');
  AB_ASSIGN_OR_RETURN(const auto begun, ReadAt(file, start.data(), start.size(), 0));
  start.resize(begun);
  AB_ASSIGN_OR_RETURN(const auto bytes, NpyHeadBytes(start));
  std::string head(bytes, '\0');
  AB_ASSIGN_OR_RETURN(const auto got, ReadAt(file, head.data(), head.size(), 0));
  head.resize(got);
  return head;
}

Result<Source> OpenSource(const std::string& path) {
  Source source;
  source.file = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!source.file.valid()) {
    const int why = errno;
    const Code code = why == ENOENT ? Code::kNotFound : why == EACCES ? Code::kPermissionDenied : Code::kInternal;
    return MakeStatus(code, std::strerror(why));
  }
  struct stat found {};
  if (::fstat(source.file.get(), &found) != 0 || !S_ISREG(found.st_mode)) return InvalidArgument("not a regular file");
  AB_ASSIGN_OR_RETURN(const auto head, HeadOf(source.file));
  AB_ASSIGN_OR_RETURN(auto array, ReadNpyHead(head));
  source.array = std::move(array);
  source.begin = head.size();
  source.bytes = *source.array.compact_bytes();  // ReadNpyHead has checked that it has a value
  // Checked before memory is allocated, because the head is untrusted.
  const uint64_t there = static_cast<uint64_t>(found.st_size) - source.begin;
  if (there == source.bytes) return source;
  return InvalidArgument("its head announces ", source.bytes, " bytes, and ", there, " follow");
}

Status Fill(const Source& source, std::byte* to) {
  for (uint64_t at = 0; at < source.bytes;) {
    const uint64_t piece = std::min(kPieceBytes, source.bytes - at);
    AB_ASSIGN_OR_RETURN(const auto got,
                        ReadAt(source.file, reinterpret_cast<char*>(to) + at, piece, source.begin + at));
    if (got < piece) return MakeStatus(Code::kAborted, "the file became shorter while it was read");
    at += piece;
  }
  return Ok();
}

// Blocks the signals, for Hold to take. Threads made later inherit the mask, and the threads of the client library take
// no signals. Before this call, a signal ends the command and its session, and leaves no share.
void KeepEndSignals() {
  const sigset_t signals = EndSignals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

Result<Share> PutSource(Broker& broker, const Source& source, const PutWishes& wishes) {
  Broker::PublishOptions how;
  how.name = wishes.name.empty() ? std::filesystem::path(wishes.file).stem().string() : wishes.name;
  how.replace = wishes.replace;
  how.lifetime = wishes.lifetime;
  how.note = "put of a file";
  auto placed = broker.Empty({&source.array, 1}, {.own = false, .device = {}, .publish = how});
  if (!placed.ok()) return placed.status();
  const Status filled = Fill(source, static_cast<std::byte*>(placed->views().at(0).data));
  if (!filled.ok()) return Status(filled.code(), Concat(wishes.file, ": ", filled.message()));
  if (wishes.hold) KeepEndSignals();
  return broker.Publish(*placed, how);
}

// Inspects the share that was published, by its generation: another share may have its name by now.
Result<v1::ShareInfo> InfoOf(const Options& options, const Share& share) {
  AB_ASSIGN_OR_RETURN(const auto connection, Connect(options));
  v1::InspectRequest request;
  request.set_namespace_(share.ns);
  request.mutable_share()->set_name(share.name);
  request.mutable_share()->set_generation(share.generation);
  AB_ASSIGN_OR_RETURN(auto found, connection->Inspect(request));
  return std::move(*found.mutable_share());
}

std::string FateOf(const v1::ShareInfo& info, const PutWishes& wishes) {
  if (wishes.hold) return "it is withdrawn when this command ends";
  if (info.expires()) return Concat("it is withdrawn in ", HumanAge(info.expires_in_ms()));
  const std::string& ns = info.share().namespace_();
  return Concat("it stays until it is withdrawn: arraybridgectl ", ns == "default" ? "" : "-n " + ns + " ", "withdraw ",
                info.share().name());
}

Status Tell(const v1::ShareInfo& info, const Options& options, const PutWishes& wishes, std::ostream& out) {
  if (IsJson(options)) return PrintJson(info, options, out);
  const v1::Share& share = info.share();
  Table table({"NAMESPACE", "NAME", "GENERATION", "ARRAY", "SIZE", "THEN"}, StyleOf(options));
  table.Add({share.namespace_(), share.name(), std::to_string(share.generation()), ArrayName(share.specs().arrays(0)),
             table.Size(share.handle().size()), FateOf(info, wishes)});
  table.Print(out, options.header);
  return Ok();
}

// An error after the share was published: withdraws the share, and says so or that it may still exist.
Status TakenBack(Broker& broker, const Share& share, const Status& why) {
  const Status gone = broker.Withdraw({.name = share.name, .generation = share.generation});
  const std::string_view now =
      gone.ok() || gone.code() == Code::kNotFound ? "and is withdrawn again" : "and may still exist";
  return Status(why.code(), Concat("'", share.name, "' was published as generation ", share.generation, ", ", now, ": ",
                                   why.message()));
}

// Waits for a signal, or until the share is gone. REQUIRES: EndSignals are blocked.
Status Hold(Broker& broker, const Share& share) {
  constexpr timespec kLookEvery{0, 500'000'000};
  const sigset_t signals = EndSignals();
  const ShareRef meant{.name = share.name, .generation = share.generation};
  while (::sigtimedwait(&signals, nullptr, &kLookEvery) < 0) {
    const auto listed = broker.List(share.name);
    if (!listed.ok()) return TakenBack(broker, share, listed.status());
    const bool there = std::ranges::any_of(*listed, [&](const ListedShare& one) {
      return one.share.name == share.name && one.share.generation == share.generation;
    });
    if (!there) return NotFound("'", share.name, "' has been withdrawn or replaced");
  }
  return broker.Withdraw(meant);
}

}  // namespace

Status Put(const Options& options, const PutWishes& wishes, std::ostream& out) {
  const auto source = OpenSource(wishes.file);
  if (!source.ok()) return Status(source.status().code(), Concat(wishes.file, ": ", source.status().message()));
  AB_ASSIGN_OR_RETURN(auto broker, ClientOf(options));
  std::signal(SIGPIPE, SIG_IGN);  // a closed output is reported by flush()
  AB_ASSIGN_OR_RETURN(const auto share, PutSource(broker, *source, wishes));
  const auto info = InfoOf(options, share);
  if (!info.ok()) return TakenBack(broker, share, info.status());
  if (info->goes_with_maker() && !wishes.hold) {
    AB_RETURN_IF_ERROR(broker.Withdraw({.name = share.name, .generation = share.generation}));
    return FailedPrecondition("namespace '", share.ns, "' withdraws a share when its maker's session ends ",
                              "(on_publisher_exit), so '", share.name, "' ended with this command: use --hold");
  }
  const Status printed = Tell(*info, options, wishes, out);
  if (!printed.ok() || !out.flush()) {
    return TakenBack(broker, share, printed.ok() ? Internal("the output could not be written") : printed);
  }
  return !wishes.hold ? Ok() : Hold(broker, share);
}

}  // namespace arraybridge::ctl
