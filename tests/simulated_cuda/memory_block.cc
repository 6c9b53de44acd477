// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/memory_block.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace arraybridge::simulated {
namespace {

constexpr int kFresh = 0xCD;

void* MapWhole(int descriptor, uint64_t size) {
  void* mapping = mmap(nullptr, kHeaderBytes + size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return mapping == MAP_FAILED ? nullptr : mapping;
}

}  // namespace

uint64_t Nonce() {
  uint64_t random = 0;
  if (getrandom(&random, sizeof(random), 0) != sizeof(random)) std::abort();
  return random | 1;
}

uint64_t ProcessNonce() {
  static const uint64_t nonce = Nonce();
  return nonce;
}

bool IsAlive(int32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const size_t name_end = line.rfind(") ");
  return name_end != std::string::npos && line[name_end + 2] != 'Z' && line[name_end + 2] != 'X';
}

MemoryBlock::MemoryBlock(UniqueFd descriptor, void* mapping, uint64_t size)
    : descriptor_(std::move(descriptor)),
      header_(static_cast<BlockHeader*>(mapping)),
      bytes_(static_cast<std::byte*>(mapping) + kHeaderBytes),
      size_(size) {}

std::shared_ptr<MemoryBlock> MemoryBlock::Create(uint64_t size, int device, BlockKind kind, uint32_t handle_types,
                                                 uint64_t* used) {
  UniqueFd descriptor(memfd_create("simulated_cuda", MFD_CLOEXEC));
  if (!descriptor.valid() || ftruncate(descriptor.get(), static_cast<off_t>(kHeaderBytes + size)) != 0) return nullptr;
  // Reserves the memory; otherwise a lack of memory would raise SIGBUS.
  if (fallocate(descriptor.get(), 0, 0, static_cast<off_t>(kHeaderBytes + size)) != 0) return nullptr;
  void* mapping = MapWhole(descriptor.get(), size);
  if (mapping == nullptr) return nullptr;
  std::shared_ptr<MemoryBlock> block(new MemoryBlock(std::move(descriptor), mapping, size));
  BlockHeader& header = block->header();
  header.magic = kMagic;
  header.id = Nonce();
  header.size = size;
  header.device = device;
  header.owner = ProcessNonce();
  header.kind = kind;
  header.handle_types = handle_types;
  std::memset(block->bytes_, kFresh, size);
  block->used_ = used;
  *used += size;
  return block;
}

std::shared_ptr<MemoryBlock> MemoryBlock::Open(int descriptor) {
  struct stat file {};
  if (fstat(descriptor, &file) != 0 || !S_ISREG(file.st_mode)) return nullptr;
  if (static_cast<uint64_t>(file.st_size) <= kHeaderBytes) return nullptr;
  uint64_t magic = 0;
  if (pread(descriptor, &magic, sizeof(magic), 0) != sizeof(magic) || magic != kMagic) return nullptr;
  UniqueFd own(fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
  if (!own.valid()) return nullptr;
  const uint64_t size = static_cast<uint64_t>(file.st_size) - kHeaderBytes;
  void* mapping = MapWhole(own.get(), size);
  if (mapping == nullptr) return nullptr;
  return std::shared_ptr<MemoryBlock>(new MemoryBlock(std::move(own), mapping, size));
}

MemoryBlock::~MemoryBlock() {
  munmap(header_, kHeaderBytes + size_);
  if (used_ != nullptr) *used_ -= size_;
}

}  // namespace arraybridge::simulated
