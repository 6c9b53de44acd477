// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/wire/handle_offer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace arraybridge::daemon {
namespace {

// The reason why the client cannot get a cudaIpcMemHandle of this process; empty if it can.
std::string WhyNoCudaIpc(const wire::ClientCapabilities& capabilities, const RunsAt& here, const Peer& peer) {
  // A client that falsely reports that it has closed the handle could read data of the memory's next owner.
  if (peer.uid != here.uid) return "it runs as another user, and such a handle cannot be revoked";
  if (peer.process == nullptr || !peer.process->valid()) {
    return "its process cannot be watched, so the broker would not see when it releases the memory";
  }
  if (capabilities.boot_id.empty() || capabilities.pid_namespace == 0) {
    return "it does not state its boot id and PID namespace";
  }
  if (capabilities.boot_id != here.boot_id) return "it runs under another kernel";
  if (capabilities.pid_namespace != here.pid_namespace) return "it runs in another PID namespace";
  if (capabilities.tegra) return "it runs on a Tegra, whose integrated GPU does not support such handles";
  return {};
}

// The reason why GPU memory cannot be opened on the client's platform; empty if it can.
std::string WhyNoCuda(const wire::ClientCapabilities& capabilities) {
  return capabilities.wsl ? "it runs under WSL2, where GPU memory cannot be shared between processes" : "";
}

// The first CUDA version whose driver opens a kind of handle.
struct Since {
  HandleKind kind;
  uint32_t version;
  const char* text;
};
constexpr Since kSince[] = {{HandleKind::kCudaVmm, 10020, "10.2"}, {HandleKind::kCudaIpc, 4010, "4.1"}};

// The reason why the client's driver is too old for `kind`. Empty: it is new enough, or `version` is 0, not stated.
std::string WhyTooOld(uint32_t version, HandleKind kind) {
  for (const Since& since : kSince) {
    if (since.kind != kind || version == 0 || version >= since.version) continue;
    return Concat("its driver supports CUDA ", version / 1000, ".", version % 1000 / 10, "; this kind needs CUDA ",
                  since.text, " or later");
  }
  return {};
}

}  // namespace

RunsAt RunsAt::Here() {
  RunsAt here;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> here.boot_id;
  struct stat found {};
  if (::stat("/proc/self/ns/pid", &found) == 0) here.pid_namespace = found.st_ino;
  here.uid = ::geteuid();
  return here;
}

void OfferHandles(const wire::ClientCapabilities& capabilities, const RunsAt& here, Peer& peer) {
  peer.kinds.clear();
  peer.refused.clear();
  for (const wire::HandleKind kind : capabilities.kinds) {
    if (kind <= wire::HandleKind::kUnspecified || kind > wire::HandleKind::kCudaIpc) continue;
    const auto of = static_cast<HandleKind>(kind);
    std::string why = WhyTooOld(capabilities.cuda_driver_version, of);
    if (why.empty() && of != HandleKind::kMemfd) why = WhyNoCuda(capabilities);
    if (why.empty() && of == HandleKind::kCudaIpc) why = WhyNoCudaIpc(capabilities, here, peer);
    if (why.empty()) {
      peer.kinds.push_back(of);
    } else {
      peer.refused += Concat(peer.refused.empty() ? "" : "; ", NameOf(of), " is refused: ", why);
    }
  }
  peer.gpus.assign(capabilities.gpu_uuids.begin(), capabilities.gpu_uuids.end());
  if (peer.kinds.empty() && peer.refused.empty()) peer.kinds.push_back(HandleKind::kMemfd);
}

void OfferEvents(const wire::ClientCapabilities& capabilities, Peer& peer) {
  const bool has_identity =
      !capabilities.boot_id.empty() && capabilities.pid_namespace != 0 && capabilities.shm_device != 0;
  if (!has_identity) return;
  peer.events = Concat(capabilities.boot_id, ' ', capabilities.pid_namespace, ' ', capabilities.shm_device);
}

}  // namespace arraybridge::daemon
