#include "daemon/service/wire/handle_offer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace arraybridge {
namespace {

// Empty: a cudaIpcMemHandle of ours can be opened there.
std::string WhyNoCudaIpc(const v1::ClientCapabilities& capabilities, const RunsAt& here, const Peer& peer) {
  if (peer.is_remote()) return "it came over TCP, where memory does not go";
  // Whoever lies about having closed it goes on reading what the next owner of that memory writes.
  if (peer.uid != here.uid) return "it is another user's, and such a handle cannot be taken back";
  if (peer.process == nullptr || !peer.process->valid()) {
    return "its process cannot be watched, so nobody would know when it has let go";
  }
  if (capabilities.boot_id().empty() || capabilities.pid_namespace() == 0) {
    return "it does not say its boot id and PID namespace";
  }
  if (capabilities.boot_id() != here.boot_id) return "it runs under another kernel";
  if (capabilities.pid_namespace() != here.pid_namespace) return "it runs in another PID namespace";
  if (capabilities.tegra()) return "it runs on a Tegra, whose integrated GPU has no such handles";
  return {};
}

// Empty: GPU memory can be opened where it runs.
std::string WhyNoCuda(const v1::ClientCapabilities& capabilities) {
  return capabilities.wsl() ? "it runs under WSL2, where GPU memory goes to no other process" : "";
}

// Handles that the stated driver came too early for; 0: it was not stated.
struct Since {
  HandleKind kind;
  uint32_t version;
  const char* text;
};
constexpr Since kSince[] = {{HandleKind::kCudaVmm, 10020, "10.2"}, {HandleKind::kCudaIpc, 4010, "4.1"}};

// Empty: its driver is new enough, or it does not say.
std::string WhyTooOld(uint32_t version, HandleKind kind) {
  for (const Since& since : kSince) {
    if (since.kind != kind || version == 0 || version >= since.version) continue;
    return Concat("its driver is one of CUDA ", version / 1000, ".", version % 1000 / 10, ", before ", since.text,
                  " none opens it");
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

void OfferHandles(const v1::ClientCapabilities& capabilities, const RunsAt& here, Peer& peer) {
  peer.kinds.clear();
  peer.refused.clear();
  for (const int kind : capabilities.kinds()) {
    if (kind == v1::HANDLE_KIND_UNSPECIFIED || !v1::HandleKind_IsValid(kind)) continue;
    const auto of = static_cast<HandleKind>(kind);
    std::string why = WhyTooOld(capabilities.cuda_driver_version(), of);
    if (why.empty() && of != HandleKind::kMemfd) why = WhyNoCuda(capabilities);
    if (why.empty() && of == HandleKind::kCudaIpc) why = WhyNoCudaIpc(capabilities, here, peer);
    if (why.empty()) {
      peer.kinds.push_back(of);
    } else {
      peer.refused += Concat(peer.refused.empty() ? "" : "; ", NameOf(of), " is refused: ", why);
    }
  }
  peer.gpus.assign(capabilities.gpu_uuids().begin(), capabilities.gpu_uuids().end());
  if (peer.kinds.empty() && peer.refused.empty()) peer.kinds.push_back(HandleKind::kMemfd);
}

void OfferEvents(const v1::ClientCapabilities& capabilities, Peer& peer) {
  if (peer.is_remote()) return;
  const bool said =
      !capabilities.boot_id().empty() && capabilities.pid_namespace() != 0 && capabilities.shm_device() != 0;
  if (!said) return;
  peer.events = Concat(capabilities.boot_id(), ' ', capabilities.pid_namespace(), ' ', capabilities.shm_device());
}

}  // namespace arraybridge
