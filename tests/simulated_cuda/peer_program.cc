// SPDX-License-Identifier: Apache-2.0
// One of two processes that share device memory. `peer_program legacy|vmm`: descriptor 3 is a socket to the other
// process; each line of standard input is a command, and each gets one line as its answer.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "proto/boundary/cuda/driver.h"
#include "tests/integration/build_tree.h"

namespace arraybridge::cuda {
namespace {

constexpr size_t kBytes = size_t{2} << 20;
constexpr size_t kSmall = 512;
constexpr int kSocket = 3;
constexpr auto kFd = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

struct Message {
  CUipcMemHandle memory;
  CUipcEventHandle event;
};

void Send(const Message& message, int descriptor) {
  iovec bytes{const_cast<Message*>(&message), sizeof(message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  }
  if (sendmsg(kSocket, &header, 0) < 0) std::abort();
}

// The received descriptor; -1 if there is none.
int Receive(Message& message) {
  iovec bytes{&message, sizeof(message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  if (recvmsg(kSocket, &header, 0) <= 0) std::abort();
  const cmsghdr* rights = CMSG_FIRSTHDR(&header);
  int descriptor = -1;
  if (rights != nullptr) std::memcpy(&descriptor, CMSG_DATA(rights), sizeof(int));
  return descriptor;
}

// Never freed, because a stream may copy from it until the process ends.
const char* Letters() {
  static const auto* const letters = new std::vector<char>(kBytes, 'A');
  return letters->data();
}

class Peer {
 public:
  Peer(const Driver& driver, bool vmm) : driver_(driver), vmm_(vmm) {
    Must(driver_.DevicePrimaryCtxRetain(&context_, 0), "retain");
    Must(driver_.CtxSetCurrent(context_), "current");
    Must(driver_.StreamCreate(&stream_, kStreamNonBlocking), "stream");
    Must(driver_.StreamCreate(&other_, kStreamNonBlocking), "stream");
  }

  std::string Do(const std::string& command) {
    const std::map<std::string, std::function<CUresult()>> verbs = {
        {"create", [this] { return Create(); }},
        {"create_small", [this] { return CreateSmall(); }},
        {"fill", [this] { return driver_.MemcpyHtoDAsync(address_, Letters(), kBytes, stream_); }},
        {"record", [this] { return driver_.EventRecord(mine_, stream_); }},
        {"send", [this] { return SendHandles(); }},
        {"receive", [this] { return ReceiveHandles(); }},
        {"open", [this] { return Open(CU_MEM_ACCESS_FLAGS_PROT_READWRITE); }},
        {"open_read_only", [this] { return Open(CU_MEM_ACCESS_FLAGS_PROT_READ); }},
        {"open_event", [this] { return driver_.IpcOpenEventHandle(&theirs_, received_.event); }},
        {"wait", [this] { return driver_.StreamWaitEvent(stream_, theirs_, 0); }},
        {"other_wait", [this] { return driver_.StreamWaitEvent(other_, theirs_, 0); }},
        {"query", [this] { return driver_.EventQuery(theirs_); }},
        {"synchronize_event", [this] { return driver_.EventSynchronize(theirs_); }},
        {"record_theirs", [this] { return driver_.EventRecord(theirs_, stream_); }},
        {"destroy_theirs", [this] { return driver_.EventDestroy(theirs_); }},
        {"destroy_mine", [this] { return driver_.EventDestroy(mine_); }},
        {"write", [this] { return driver_.MemsetD8Async(address_, 1, kBytes, stream_); }},
        {"synchronize", [this] { return driver_.StreamSynchronize(stream_); }},
        {"synchronize_other", [this] { return driver_.StreamSynchronize(other_); }},
        {"close", [this] { return Close(); }},
        {"free", [this] { return driver_.MemFree(address_); }},
        {"release_context", [this] { return driver_.DevicePrimaryCtxRelease(0); }},
    };
    if (command == "read") return Read();
    if (command == "neighbour") return Neighbour();
    if (command == "peek") return std::to_string(*reinterpret_cast<volatile char*>(address_));
    return std::to_string(verbs.at(command)());
  }

 private:
  static void Must(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return;
    std::fprintf(stderr, "%s: %u\n", what, static_cast<unsigned>(result));
    std::abort();
  }

  CUresult Map(CUmemGenericAllocationHandle handle, CUmemAccess_flags access) {
    CUresult result = driver_.MemAddressReserve(&address_, kBytes, 0, 0, 0);
    if (result == CUDA_SUCCESS) result = driver_.MemMap(address_, kBytes, 0, handle, 0);
    const CUmemAccessDesc description{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, access};
    return result == CUDA_SUCCESS ? driver_.MemSetAccess(address_, kBytes, &description, 1) : result;
  }
  CUresult Create() {
    Must(driver_.EventCreate(&mine_, kEventInterprocess | kEventDisableTiming), "event");
    if (!vmm_) return driver_.MemAlloc(&address_, kBytes);
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = kFd;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    Must(driver_.MemCreate(&handle_, kBytes, &properties, 0), "create");
    return Map(handle_, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  }
  // Creates two adjacent small allocations; the first one is filled with sevens.
  CUresult CreateSmall() {
    Must(driver_.EventCreate(&mine_, kEventInterprocess | kEventDisableTiming), "event");
    CUdeviceptr neighbour = 0;
    Must(driver_.MemAlloc(&neighbour, kSmall), "alloc");
    Must(driver_.MemsetD8Async(neighbour, 7, kSmall, stream_), "fill");
    Must(driver_.StreamSynchronize(stream_), "synchronize");
    return driver_.MemAlloc(&address_, kSmall);
  }
  // Reads the byte before the opened allocation.
  std::string Neighbour() {
    uint8_t byte = 0;
    Must(driver_.MemcpyDtoHAsync(&byte, address_ - 1, 1, stream_), "copy");
    Must(driver_.StreamSynchronize(stream_), "synchronize");
    return std::to_string(byte);
  }
  CUresult SendHandles() {
    Message message{};
    int descriptor = -1;
    Must(driver_.IpcGetEventHandle(&message.event, mine_), "event handle");
    const CUresult result = vmm_            ? driver_.MemExportToShareableHandle(&descriptor, handle_, kFd, 0)
                            : address_ != 0 ? driver_.IpcGetMemHandle(&message.memory, address_)
                                            : CUDA_SUCCESS;
    Send(message, descriptor);
    if (descriptor >= 0) ::close(descriptor);
    return result;
  }
  CUresult ReceiveHandles() {
    descriptor_ = Receive(received_);
    return CUDA_SUCCESS;
  }
  CUresult Open(CUmemAccess_flags access) {
    if (!vmm_) return driver_.IpcOpenMemHandle(&address_, received_.memory, kIpcMemLazyEnablePeerAccess);
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result =
        driver_.MemImportFromShareableHandle(&handle, reinterpret_cast<void*>(uintptr_t(descriptor_)), kFd);
    ::close(descriptor_);
    if (result != CUDA_SUCCESS) return result;
    const CUresult mapped = Map(handle, access);
    Must(driver_.MemRelease(handle), "release");
    return mapped;
  }
  CUresult Close() {
    if (!vmm_) return driver_.IpcCloseMemHandle(address_);
    Must(driver_.MemUnmap(address_, kBytes), "unmap");
    return driver_.MemAddressFree(address_, kBytes);
  }
  // "A" if every byte is A; otherwise the numbers of the first and last byte.
  std::string Read() {
    std::vector<uint8_t> host(kBytes);
    CUresult result = driver_.MemcpyDtoHAsync(host.data(), address_, kBytes, stream_);
    if (host[0] != 0) return "early";
    if (result == CUDA_SUCCESS) result = driver_.StreamSynchronize(stream_);
    if (result != CUDA_SUCCESS) return std::to_string(result) + (host[0] != 0 ? ", yet read" : "");
    const bool same = std::count(host.begin(), host.end(), host[0]) == static_cast<std::ptrdiff_t>(kBytes);
    if (!same) return "mixed";
    return host[0] == 'A' ? "A" : "all " + std::to_string(host[0]);
  }

  const Driver& driver_;
  const bool vmm_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUstream other_ = nullptr;
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
  CUevent mine_ = nullptr;
  CUevent theirs_ = nullptr;
  Message received_{};
  int descriptor_ = -1;
};

int Main(bool vmm) {
  const auto driver = Driver::Load(DriverUnderTest(SIMULATED_CUDA_LIBRARY));
  if (!driver.ok()) {
    std::cout << driver.status().ToString() << std::endl;
    return 1;
  }
  Peer peer(*driver, vmm);
  for (std::string command; std::getline(std::cin, command);) std::cout << peer.Do(command) << std::endl;
  return 0;
}

}  // namespace
}  // namespace arraybridge::cuda

int main(int count, char** words) {
  return count == 2 ? arraybridge::cuda::Main(std::strcmp(words[1], "vmm") == 0) : 64;
}
