// SPDX-License-Identifier: Apache-2.0
// Properties of a driver: its symbols, the attributes of pointers, its treatment of foreign descriptors.
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>

#include "tests/gpu/experiments/peer_program.h"

namespace arraybridge::experiments {
namespace {

using cuda::CUpointer_attribute;
using cuda::CUresult;

// symbols: those that either way of lookup misses, those where both ways differ, and whether the names without _v2 are
// different functions.
Reply SymbolsOfDriver(State& state, const Words&) {
  using Find = CUresult(const char*, void**, int, uint64_t, cuda::CUdriverProcAddressQueryResult*);
  auto* const find = reinterpret_cast<Find*>(state.Exported("cuGetProcAddress_v2"));
  if (find == nullptr) return {cuda::CUDA_ERROR_NOT_FOUND, "no cuGetProcAddress_v2"};
  enum class Need : uint8_t { kRequired, kOptional };
  std::string missing;
  std::string optional;
  std::string differing;
  const auto ask = [&](const std::string& base, const char* exported_name, int version, Need need) {
    void* found = nullptr;
    cuda::CUdriverProcAddressQueryResult why{};
    state.Call((base + " by cuGetProcAddress").c_str(), find, base.c_str(), &found, version, uint64_t{0}, &why);
    void* const exported = state.Exported(exported_name);
    if (found == nullptr || exported == nullptr) (need == Need::kRequired ? missing : optional) += " " + base;
    if (found != nullptr && exported != nullptr && found != exported) differing += " " + base;
  };
#define AB_ASK(name, version, suffix, need, parameters) ask("cu" #name, "cu" #name #suffix, version, Need::need);
  AB_DRIVER_SYMBOLS(AB_ASK)
#undef AB_ASK
  void* const older = state.Exported("cuMemAlloc");
  const bool another = older != nullptr && older != state.Exported("cuMemAlloc_v2");
  return {cuda::CUDA_SUCCESS,
          Concat("missing:", missing.empty() ? " none" : missing,
                 "; optional ones missing:", optional.empty() ? " none" : optional,
                 "; other pointer by dlsym:", differing.empty() ? " none" : differing, "; cuMemAlloc is ",
                 older == nullptr ? "absent"
                 : another        ? "another"
                                  : "the same")};
}

struct Attribute {
  CUpointer_attribute number;
  size_t size;
};
constexpr std::array<Attribute, 11> kAttributes = {{{cuda::CU_POINTER_ATTRIBUTE_BUFFER_ID, 8},
                                                    {cuda::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 4},
                                                    {cuda::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 8},
                                                    {cuda::CU_POINTER_ATTRIBUTE_RANGE_SIZE, 8},
                                                    {cuda::CU_POINTER_ATTRIBUTE_MAPPED, 4},
                                                    {cuda::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 8},
                                                    {cuda::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, 4},
                                                    {cuda::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 8},
                                                    {cuda::CU_POINTER_ATTRIBUTE_MAPPING_SIZE, 8},
                                                    {cuda::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, 8},
                                                    {cuda::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, 8}}};

// Addresses differ between runs, so this only shows whether there is one, and whether it is the pointer.
std::string Shown(const Attribute& attribute, uint64_t value, cuda::CUdeviceptr pointer) {
  const bool address = attribute.number == cuda::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
                       attribute.number == cuda::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE ||
                       attribute.number == cuda::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR;
  if (!address || value == 0) return std::to_string(value);
  return value == pointer ? "itself" : "an address";
}

std::string Ask(const State& state, cuda::CUdeviceptr pointer) {
  std::string said;
  for (const Attribute& attribute : kAttributes) {
    uint64_t alone = 0;
    uint64_t together = 0;
    CUpointer_attribute number = attribute.number;
    void* where = &together;
    const CUresult one = state.Call("cuPointerGetAttribute", state.driver.PointerGetAttribute, &alone, number, pointer);
    const CUresult many =
        state.Call("cuPointerGetAttributes", state.driver.PointerGetAttributes, 1u, &number, &where, pointer);
    said += Concat(
        said.empty() ? "" : ", ", static_cast<uint32_t>(number), "=",
        one == cuda::CUDA_SUCCESS ? Shown(attribute, alone, pointer) : Concat("error ", static_cast<uint32_t>(one)));
    if (one != many || alone != together) {
      said += Concat(" (list: ", static_cast<uint32_t>(many), ", ", Shown(attribute, together, pointer), ")");
    }
  }
  return said;
}

// attributes alloc|vmm|pool|registered|unknown: of a pointer of that kind.
Reply Attributes(State& state, const Words& words) {
  constexpr uint64_t bytes = uint64_t{2} << 20;
  if (words[0] == "alloc") {
    cuda::CUdeviceptr pointer = 0;
    const CUresult made = state.Call("cuMemAlloc", state.driver.MemAlloc, &pointer, bytes);
    return {made, Ask(state, pointer)};
  }
  if (words[0] == "vmm") {
    Block& block = state.blocks["attributes"];
    const auto properties = BlockProperties();
    CUresult made = state.Call("cuMemCreate", state.driver.MemCreate, &block.handle, bytes, &properties, 0);
    if (made == cuda::CUDA_SUCCESS) made = MapBlock(state, block, bytes, 0, cuda::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return {made, Ask(state, block.address)};
  }
  if (words[0] == "pool") {
    using Make = CUresult(cuda::CUdeviceptr*, size_t, cuda::CUstream);
    auto* const make = reinterpret_cast<Make*>(state.Exported("cuMemAllocAsync"));
    if (make == nullptr) return {cuda::CUDA_ERROR_NOT_FOUND, "no cuMemAllocAsync"};
    cuda::CUdeviceptr pointer = 0;
    CUresult made = state.Call("cuMemAllocAsync", make, &pointer, bytes, state.stream);
    if (made == cuda::CUDA_SUCCESS) made = state.driver.StreamSynchronize(state.stream);
    return {made, Ask(state, pointer)};
  }
  void* const host = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CUresult made = cuda::CUDA_SUCCESS;
  if (words[0] == "registered") made = state.Call("cuMemHostRegister", state.driver.MemHostRegister, host, bytes, 0u);
  return {made, Ask(state, reinterpret_cast<cuda::CUdeviceptr>(host))};
}

// pointer NAME [bare]: the range and the attributes of a block's address; bare: in a thread without a context.
Reply Pointer(State& state, const Words& words) {
  const cuda::CUdeviceptr pointer = state.blocks[words[0]].address;
  Reply reply;
  const auto ask = [&] {
    cuda::CUdeviceptr base = 0;
    size_t size = 0;
    reply.result = state.Call("cuMemGetAddressRange", state.driver.MemGetAddressRange, &base, &size, pointer);
    reply.value =
        Concat("range of ", size, base == pointer ? " from itself" : " from elsewhere", ", ", Ask(state, pointer));
  };
  if (words[1] == "bare") {
    std::thread(ask).join();
  } else {
    ask();
  }
  return reply;
}

size_t OpenDescriptors() {
  DIR* const folder = ::opendir("/proc/self/fd");
  size_t count = 0;
  while (folder != nullptr && ::readdir(folder) != nullptr) ++count;
  if (folder != nullptr) ::closedir(folder);
  return count;
}

int HostileDescriptor(const std::string& kind) {
  if (kind == "memfd") return ::memfd_create("hostile", MFD_CLOEXEC);
  if (kind == "null") return ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (kind == "nvidiactl") return ::open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
  if (kind == "pipe") {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) == 0) ::close(ends[1]);
    return ends[0];
  }
  return 987;  // closed
}

// open_nodes: opens /dev/nvidia0 and so on; the value: how many.
Reply OpenNodes(State&, const Words&) {
  int opened = 0;
  for (int number = 0; number < 64; ++number) {
    // Open until this process ends.
    if (::open(Concat("/dev/nvidia", number).c_str(), O_RDWR | O_CLOEXEC) >= 0) ++opened;
  }
  return {cuda::CUDA_SUCCESS, Concat(opened, " nodes")};
}

// hostile KIND COUNT: imports it COUNT times; the value: refusals, and additional descriptors.
Reply Hostile(State& state, const Words& words) {
  const int descriptor = HostileDescriptor(words[0]);
  if (descriptor < 0) return {cuda::CUDA_ERROR_NOT_FOUND, "there is none"};
  auto* const shareable = reinterpret_cast<void*>(uintptr_t(descriptor));
  const size_t before = OpenDescriptors();
  const auto begun = std::chrono::steady_clock::now();
  uint64_t refused = 0;
  CUresult last = cuda::CUDA_SUCCESS;
  for (uint64_t i = 0; i < words.Number(1); ++i) {
    cuda::CUmemGenericAllocationHandle handle = 0;
    last =
        state.driver.MemImportFromShareableHandle(&handle, shareable, cuda::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    refused += last != cuda::CUDA_SUCCESS ? 1 : 0;
  }
  state.recorder.Write("cuMemImportFromShareableHandle", last, MicrosecondsSince(begun));
  const size_t after = OpenDescriptors();
  if (words[0] != "closed") ::close(descriptor);
  return {cuda::CUDA_SUCCESS,
          Concat(refused, " refused, last ", static_cast<uint32_t>(last), ", descriptors leaked ", after - before)};
}

// garbage: opens handles that no driver made.
Reply Garbage(State& state, const Words&) {
  cuda::CUipcMemHandle memory{};
  cuda::CUipcEventHandle event{};
  std::memset(&memory, 'x', sizeof memory);
  std::memset(&event, 'x', sizeof event);
  cuda::CUdeviceptr address = 0;
  cuda::CUevent opened = nullptr;
  const CUresult first = state.Call("cuIpcOpenMemHandle", state.driver.IpcOpenMemHandle, &address, memory,
                                    cuda::kIpcMemLazyEnablePeerAccess);
  const CUresult second = state.Call("cuIpcOpenEventHandle", state.driver.IpcOpenEventHandle, &opened, event);
  const bool refused = first != cuda::CUDA_SUCCESS && second != cuda::CUDA_SUCCESS;
  return {cuda::CUDA_SUCCESS, Concat(refused ? "refused" : "accepted", ", memory ", static_cast<uint32_t>(first),
                                     ", event ", static_cast<uint32_t>(second))};
}

}  // namespace

void AddProbeVerbs(Verbs& verbs) {
  verbs.insert({{"open_nodes", OpenNodes},
                {"symbols", SymbolsOfDriver},
                {"attributes", Attributes},
                {"pointer", Pointer},
                {"hostile", Hostile},
                {"garbage", Garbage}});
}

}  // namespace arraybridge::experiments
