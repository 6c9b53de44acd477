// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/wire/handle_offer.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <functional>

#include "tests/unit/service/asked.h"

namespace arraybridge::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const RunsAt kHere{.boot_id = "boot", .pid_namespace = 7, .uid = 1000};

v1::ClientCapabilities All() {
  v1::ClientCapabilities capabilities;
  for (const auto kind : {v1::HANDLE_KIND_MEMFD, v1::HANDLE_KIND_CUDA_VMM, v1::HANDLE_KIND_CUDA_IPC}) {
    capabilities.add_kinds(kind);
  }
  capabilities.set_boot_id(kHere.boot_id);
  capabilities.set_pid_namespace(kHere.pid_namespace);
  return capabilities;
}

Peer Neighbour() {
  Peer peer{.uid = kHere.uid, .client = "test"};
  peer.process = std::make_shared<const UniqueFd>(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return peer;
}

TEST(HandleOffer, ANeighbourIsOfferedAllThatItOpens) {
  Peer peer = Neighbour();
  OfferHandles(As<wire::ClientCapabilities>(All()), kHere, peer);
  EXPECT_THAT(peer.kinds, ElementsAre(HandleKind::kMemfd, HandleKind::kCudaVmm, HandleKind::kCudaIpc));
  EXPECT_EQ(peer.refused, "");
}

TEST(HandleOffer, WhoSaysNothingOpensMemfds) {
  Peer peer = Neighbour();
  OfferHandles({}, kHere, peer);
  EXPECT_THAT(peer.kinds, ElementsAre(HandleKind::kMemfd));
}

TEST(HandleOffer, KindsOfTheFutureArePassedOver) {
  v1::ClientCapabilities capabilities;
  capabilities.add_kinds(static_cast<v1::HandleKind>(99));
  capabilities.add_kinds(v1::HANDLE_KIND_CUDA_VMM);
  Peer peer = Neighbour();
  OfferHandles(As<wire::ClientCapabilities>(capabilities), kHere, peer);
  EXPECT_THAT(peer.kinds, ElementsAre(HandleKind::kCudaVmm));
}

TEST(HandleOffer, ACudaIpcMemHandleIsRefusedWhereItWouldNotWorkOrNotEnd) {
  struct Case {
    std::function<void(v1::ClientCapabilities&, Peer&)> change;
    const char* why;
  };
  const Case cases[] = {
      {[](auto&, Peer& peer) { peer.uid = 1001; }, "another user"},
      {[](auto&, Peer& peer) { peer.process = nullptr; }, "cannot be watched"},
      {[](auto&, Peer& peer) { peer.process = std::make_shared<const UniqueFd>(); }, "cannot be watched"},
      {[](auto& said, Peer&) { said.clear_boot_id(); }, "does not state"},
      {[](auto& said, Peer&) { said.clear_pid_namespace(); }, "does not state"},
      {[](auto& said, Peer&) { said.set_boot_id("other"); }, "another kernel"},
      {[](auto& said, Peer&) { said.set_pid_namespace(8); }, "another PID namespace"},
      {[](auto& said, Peer&) { said.set_tegra(true); }, "runs on a Tegra"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.why);
    v1::ClientCapabilities capabilities = All();
    Peer peer = Neighbour();
    one.change(capabilities, peer);
    OfferHandles(As<wire::ClientCapabilities>(capabilities), kHere, peer);
    EXPECT_THAT(peer.kinds, ElementsAre(HandleKind::kMemfd, HandleKind::kCudaVmm));
    EXPECT_THAT(peer.refused, HasSubstr(one.why));
  }
}

TEST(HandleOffer, WhatItsDriverIsTooOldForIsRefusedWithTheReason) {
  v1::ClientCapabilities capabilities = All();
  capabilities.set_cuda_driver_version(10010);
  Peer peer = Neighbour();
  OfferHandles(As<wire::ClientCapabilities>(capabilities), kHere, peer);
  EXPECT_THAT(peer.kinds, ElementsAre(HandleKind::kMemfd, HandleKind::kCudaIpc));
  EXPECT_THAT(peer.refused,
              HasSubstr("cuda_vmm is refused: its driver supports CUDA 10.1; this kind needs CUDA 10.2 or later"));
  capabilities.set_boot_id("other");
  OfferHandles(As<wire::ClientCapabilities>(capabilities), kHere, peer);
  EXPECT_THAT(peer.kinds, ElementsAre(HandleKind::kMemfd));
  EXPECT_THAT(peer.refused, HasSubstr("10.2 or later; cuda_ipc is refused: it runs under another kernel"));
  capabilities = All();
  capabilities.set_cuda_driver_version(10020);
  OfferHandles(As<wire::ClientCapabilities>(capabilities), kHere, peer);
  EXPECT_EQ(peer.refused, "");
}

TEST(HandleOffer, UnderWsl2NoGpuMemoryIsOffered) {
  v1::ClientCapabilities capabilities = All();
  capabilities.set_wsl(true);
  Peer peer = Neighbour();
  OfferHandles(As<wire::ClientCapabilities>(capabilities), kHere, peer);
  EXPECT_THAT(peer.kinds, ElementsAre(HandleKind::kMemfd));
  EXPECT_THAT(peer.refused, HasSubstr("cuda_vmm is refused: it runs under WSL2"));
  EXPECT_THAT(peer.refused, HasSubstr("cuda_ipc is refused: it runs under WSL2"));
}

TEST(HandleOffer, TheGpusThatItSeesAreNoted) {
  v1::ClientCapabilities capabilities = All();
  capabilities.add_gpu_uuids("GPU-1");
  Peer peer = Neighbour();
  OfferHandles(As<wire::ClientCapabilities>(capabilities), kHere, peer);
  EXPECT_THAT(peer.gpus, ElementsAre("GPU-1"));
}

}  // namespace
}  // namespace arraybridge::daemon
