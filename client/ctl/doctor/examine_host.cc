// SPDX-License-Identifier: Apache-2.0
// Examines this host without a broker. The paths are those of Linux; a missing file is reported.
#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "client/ctl/doctor/doctor.h"
#include "client/ctl/output/table.h"
#include "proto/boundary/handle.h"

namespace arraybridge::ctl {
namespace {

constexpr rlim_t kDescriptorsEnough = 4096;
constexpr std::string_view kSharedHugePages = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

struct Version {
  int major = 0;
  int minor = 0;
  friend auto operator<=>(const Version&, const Version&) = default;  // NOLINT(modernize-use-nullptr): its 0
};

std::string FirstLine(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// Features of later Linux versions that the broker uses if they exist.
struct Gain {
  Version since;
  const char* what;
};
constexpr std::array<Gain, 3> kGains{{
    {{5, 14}, "memory populated ahead of demand"},
    {{6, 1}, "huge pages independent of shmem_enabled"},
    {{6, 7}, "private mappings kept between two gets"},
}};

Finding Kernel() {
  utsname system{};
  Version version;
  if (::uname(&system) != 0 || std::sscanf(system.release, "%d.%d", &version.major, &version.minor) != 2)
    return {"kernel", Health::kNote, "its version is unknown", "uname -r"};
  std::string lacks;
  for (const Gain& gain : kGains) {
    if (version >= gain.since) continue;
    lacks += Concat(lacks.empty() ? "" : ", ", gain.what, " (", gain.since.major, ".", gain.since.minor, ")");
  }
  if (lacks.empty()) return {"kernel", Health::kOk, Concat("Linux ", version.major, ".", version.minor), ""};
  const std::string_view machine = std::string_view(system.machine) == "aarch64" ? "arm64" : "amd64";
  return {"kernel", Health::kNote, Concat("Linux ", version.major, ".", version.minor, " lacks ", lacks),
          Concat("sudo apt-get install linux-image-", machine, " (6.7: from bookworm-backports), then sudo reboot")};
}

Finding HugePages() {
  // "always within_size [advise] never": the value in brackets is in effect.
  const std::string line = FirstLine(std::string(kSharedHugePages));
  const auto open = line.find('[');
  const auto close = line.find(']');
  if (open == std::string::npos || close < open)
    return {"huge pages", Health::kNote, "this kernel has no huge pages for shared memory",
            "no command: the kernel must be built with them; grep TRANSPARENT_HUGEPAGE /boot/config-$(uname -r)"};
  const std::string chosen = line.substr(open + 1, close - open - 1);
  if (chosen == "deny")
    return {"huge pages", Health::kNote, "denied to shared memory: first puts cost more",
            Concat("echo advise | sudo tee ", kSharedHugePages)};
  if (chosen == "never")
    return {"huge pages", Health::kOk, "shared memory: never; a broker makes its own where it can (Linux 6.1)", ""};
  return {"huge pages", Health::kOk, "shared memory: " + chosen, ""};
}

Finding Descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string text = Concat("a process here may open ", limit.rlim_cur, ", at most ", limit.rlim_max);
  if (limit.rlim_cur >= kDescriptorsEnough) return {"descriptors", Health::kOk, text, ""};
  const rlim_t wanted = limit.rlim_max < kDescriptorsEnough ? limit.rlim_max : kDescriptorsEnough;
  return {"descriptors", Health::kNote, text + "; each arena that a client reads takes one",
          limit.rlim_max < kDescriptorsEnough
              ? std::string("LimitNOFILE=65536 in the unit, or /etc/security/limits.conf")
              : Concat("ulimit -n ", wanted)};
}

Finding LockedMemory() {
  constexpr rlim_t kEnough = 8 << 20;  // enough for a broker with many sessions
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return {"locked memory", Health::kOk, "not limited", ""};
  const std::string text = Concat("a process here may lock ", HumanSize(limit.rlim_cur));
  if (limit.rlim_cur >= kEnough) return {"locked memory", Health::kOk, text, ""};
  return {"locked memory", Health::kNote, text + "; tables that a broker here cannot lock may be paged out",
          "LimitMEMLOCK=infinity in the unit, as in the shipped unit, or ulimit -l unlimited"};
}

Finding AddressSpace() {
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return {"address space", Health::kOk, "not limited", ""};
  return {"address space", Health::kNote,
          Concat("limited to ", HumanSize(limit.rlim_cur), ": a client maps every arena that it reads as a whole"),
          "ulimit -v unlimited"};
}

// The limit of this control group itself; limits of its parents may be lower.
Finding MemoryLimit() {
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    std::string folder;
    std::string limit_file = "memory.max", usage_file = "memory.current";
    if (line.starts_with("0::")) {
      folder = "/sys/fs/cgroup" + line.substr(3);
    } else if (const auto memory = line.find(":memory:"); memory != std::string::npos) {
      folder = "/sys/fs/cgroup/memory" + line.substr(memory + 8);
      limit_file = "memory.limit_in_bytes";
      usage_file = "memory.usage_in_bytes";
    } else {
      continue;
    }
    const std::string limit = FirstLine(folder + "/" + limit_file);
    if (limit.empty()) continue;
    constexpr uint64_t kUnlimited = 1ull << 60;  // version 1 expresses "unlimited" by a huge number
    const uint64_t bytes = limit == "max" ? kUnlimited : std::strtoull(limit.c_str(), nullptr, 10);
    if (bytes >= kUnlimited) return {"memory limit", Health::kOk, "this control group has no limit", ""};
    const uint64_t used = std::strtoull(FirstLine(folder + "/" + usage_file).c_str(), nullptr, 10);
    return {"memory limit", Health::kOk,
            Concat("this control group may use ", HumanSize(bytes), ", ", HumanSize(used),
                   " in use; a broker here takes half of the rest as its capacity"),
            ""};
  }
  return {
      "memory limit", Health::kNote, "no memory control group is visible",
      "no command: the group in /proc/self/cgroup is not below /sys/fs/cgroup here; memory.host.capacity sets what a "
      "broker may take"};
}

std::string GroupOf(gid_t id) {
  std::array<char, 1024> text{};
  group found{};
  group* result = nullptr;
  if (::getgrgid_r(id, &found, text.data(), text.size(), &result) != 0 || result == nullptr) return std::to_string(id);
  return found.gr_name;
}

Finding Socket(const std::filesystem::path& path) {
  const std::string name = path.filename();
  const std::string directory = path.parent_path();
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    const bool hidden = errno == EACCES;
    if (!hidden) {
      return {name, Health::kProblem, "does not exist: no broker serves this directory",
              directory == "/run/arraybridge" ? "sudo systemctl start arraybridged.socket arraybridged-lifeline.socket"
                                              : Concat("arraybridged --directory ", directory)};
    }
    return {name, Health::kProblem, "this user must not read its directory", "run as the user that the broker serves"};
  }
  if (!S_ISSOCK(info.st_mode)) return {name, Health::kProblem, "is not a socket", Concat("rm ", path.string())};
  if (::access(path.c_str(), R_OK | W_OK) == 0) return {name, Health::kOk, "this user may connect", ""};
  const std::string group = GroupOf(info.st_gid);
  return {name, Health::kProblem, Concat("this user is not in its group, ", group),
          Concat("sudo usermod -aG ", group, " \"$USER\"")};
}

Finding DeviceNodes() {
  if (::access("/dev/nvidiactl", F_OK) != 0) {
    const bool loaded = std::filesystem::exists("/proc/driver/nvidia/version");
    return {"device nodes", Health::kNote,
            "no /dev/nvidiactl: no NVIDIA driver here, or this container has no access to it",
            loaded ? "sudo nvidia-modprobe -c 0 -u"
                   : "where there is an NVIDIA GPU: sudo apt-get install nvidia-driver; for a container: podman run "
                     "--device nvidia.com/gpu=all, or docker run --gpus all"};
  }
  if (::access("/dev/nvidiactl", R_OK | W_OK) == 0)
    return {"device nodes", Health::kOk, "/dev/nvidiactl is accessible", ""};
  struct stat info {};
  ::stat("/dev/nvidiactl", &info);
  return {"device nodes", Health::kProblem, "/dev/nvidiactl is not accessible to this user",
          Concat("sudo usermod -aG ", GroupOf(info.st_gid), " \"$USER\"")};
}

}  // namespace

std::vector<Finding> ExamineHost(const std::string& socket) {
  std::vector<Finding> findings{Kernel(),       HugePages(),   Descriptors(), LockedMemory(),
                                AddressSpace(), MemoryLimit(), DeviceNodes()};
  if (const std::string driver = FirstLine("/proc/driver/nvidia/version"); !driver.empty())
    findings.push_back({"driver", Health::kOk, driver, ""});
  if (socket.empty()) return findings;
  const std::filesystem::path broker(socket);
  findings.push_back(Socket(broker));
  if (broker.filename() == "broker.sock") findings.push_back(Socket(broker.parent_path() / "lifeline.sock"));
  return findings;
}

}  // namespace arraybridge::ctl
