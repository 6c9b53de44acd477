// SPDX-License-Identifier: Apache-2.0
// The dynamic section names the tables of relocations; each relocation names a symbol and the slot for its address.
// https://refspecs.linuxfoundation.org/elf/gabi4+/ch5.dynamic.html
#include "client/born/imports/loaded_library.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <span>

namespace arraybridge {
namespace {

// Relocations that store the address of a symbol: a slot of calls, of addresses, and an initialised variable. On other
// processors no slot is found.
#if defined(__x86_64__)
constexpr uint32_t kAddresses[] = {R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT, R_X86_64_64};
#elif defined(__aarch64__)
constexpr uint32_t kAddresses[] = {R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT, R_AARCH64_ABS64};
#else
constexpr uint32_t kAddresses[] = {UINT32_MAX};
#endif

uintptr_t PageOf(uintptr_t address) {
  static const auto size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  return address / size * size;
}

std::string_view FileNameOf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

void* ImportSlot::function() const { return std::atomic_ref(*place).load(std::memory_order_acquire); }

bool ImportSlot::Store(void* function) const {
  void* const page = std::bit_cast<void*>(PageOf(std::bit_cast<uintptr_t>(place)));
  const auto size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  if (is_read_only && ::mprotect(page, size, PROT_READ | PROT_WRITE) != 0) return false;
  std::atomic_ref(*place).store(function, std::memory_order_release);
  if (is_read_only) ::mprotect(page, size, PROT_READ);
  return true;
}

struct LoadedLibrary::Search {
  static int Look(dl_phdr_info* info, size_t /*size*/, void* search) {
    auto& self = *static_cast<Search*>(search);
    if (info->dlpi_name == nullptr || !FileNameOf(info->dlpi_name).starts_with(self.file_name)) return 0;
    self.found = LoadedLibrary(*info);
    return 1;
  }

  std::string_view file_name;
  std::optional<LoadedLibrary> found;
};

// The second look finds what cannot be unloaded any more.
std::optional<LoadedLibrary> LoadedLibrary::Find(std::string_view file_name) {
  Search first{file_name, std::nullopt};
  if (::dl_iterate_phdr(Search::Look, &first) == 0) return std::nullopt;
  if (::dlopen(first.found->path_.c_str(), RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE) == nullptr) return std::nullopt;
  Search second{file_name, std::nullopt};
  ::dl_iterate_phdr(Search::Look, &second);
  return second.found;
}

LoadedLibrary::LoadedLibrary(const dl_phdr_info& info) : path_(info.dlpi_name), base_(info.dlpi_addr) {
  const std::span headers(info.dlpi_phdr, info.dlpi_phnum);
  loaded_.first = UINTPTR_MAX;
  const ElfW(Dyn)* dynamic = nullptr;
  for (const auto& header : headers) {
    const Span span{base_ + header.p_vaddr, base_ + header.p_vaddr + header.p_memsz};
    if (header.p_type == PT_LOAD) loaded_ = {std::min(loaded_.first, span.first), std::max(loaded_.end, span.end)};
    if (header.p_type == PT_GNU_RELRO) read_only_ = {PageOf(span.first), PageOf(span.end)};
    if (header.p_type == PT_DYNAMIC) dynamic = std::bit_cast<const ElfW(Dyn)*>(span.first);
  }
  if (dynamic != nullptr) Read(dynamic);
}

// The GNU C library stores addresses here, others leave offsets.
uintptr_t LoadedLibrary::AddressOf(const ElfW(Dyn) & entry) const {
  return loaded_.Contains(entry.d_un.d_ptr) ? entry.d_un.d_ptr : base_ + entry.d_un.d_ptr;
}

void LoadedLibrary::Read(const ElfW(Dyn) * entry) {
  for (; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) symbols_ = std::bit_cast<const ElfW(Sym)*>(AddressOf(*entry));
    if (entry->d_tag == DT_STRTAB) names_ = std::bit_cast<const char*>(AddressOf(*entry));
    if (entry->d_tag == DT_RELA) tables_[0] = AddressOf(*entry);
    if (entry->d_tag == DT_RELASZ) table_bytes_[0] = entry->d_un.d_val;
    if (entry->d_tag == DT_JMPREL) tables_[1] = AddressOf(*entry);
    if (entry->d_tag == DT_PLTRELSZ) table_bytes_[1] = entry->d_un.d_val;
  }
}

std::vector<ImportSlot> LoadedLibrary::SlotsOf(std::string_view function) const {
  std::vector<ImportSlot> slots;
  if (symbols_ == nullptr || names_ == nullptr) return slots;
  for (size_t table = 0; table < 2; ++table) {
    if (tables_[table] == 0) continue;
    const auto* const first = std::bit_cast<const ElfW(Rela)*>(tables_[table]);
    for (const auto& relocation : std::span(first, table_bytes_[table] / sizeof(*first))) {
      const auto type = static_cast<uint32_t>(ELF64_R_TYPE(relocation.r_info));
      if (std::ranges::find(kAddresses, type) == std::end(kAddresses) || relocation.r_addend != 0) continue;
      const ElfW(Sym)& symbol = symbols_[ELF64_R_SYM(relocation.r_info)];
      if (symbol.st_shndx != SHN_UNDEF || function != names_ + symbol.st_name) continue;
      const uintptr_t place = base_ + relocation.r_offset;
      slots.push_back({std::bit_cast<void**>(place), read_only_.Contains(place)});
    }
  }
  return slots;
}

bool LoadedLibrary::Contains(const void* address) const { return loaded_.Contains(std::bit_cast<uintptr_t>(address)); }

}  // namespace arraybridge
