// SPDX-License-Identifier: Apache-2.0
// A LoadedLibrary is a shared object of this process in which the slots of its imports are found: the places from which
// it reads the addresses of functions of other libraries, as the dynamic linker filled them in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <elf.h>
#include <link.h>

namespace arraybridge {

struct ImportSlot {
  // Stores the address of another function. False: the kernel refused to make its page writable. REQUIRES: one thread
  // at a time.
  bool Store(void* function) const;
  void* function() const;

  void** place = nullptr;
  bool is_read_only = false;  // its page, once the library is relocated
};

class LoadedLibrary {
 public:
  // The library whose file's name begins so, which stays loaded from then on; nothing if there is none.
  static std::optional<LoadedLibrary> Find(std::string_view file_name);

  // The slots through which it calls this function of another library, or passes its address on.
  std::vector<ImportSlot> SlotsOf(std::string_view function) const;
  // True if the address lies in the library itself, as that of a function does which was never called.
  bool Contains(const void* address) const;

 private:
  struct Search;
  struct Span {
    bool Contains(uintptr_t address) const { return address >= first && address < end; }

    uintptr_t first = 0;
    uintptr_t end = 0;
  };

  explicit LoadedLibrary(const dl_phdr_info& info);
  void Read(const ElfW(Dyn) * entry);
  uintptr_t AddressOf(const ElfW(Dyn) & entry) const;

  std::string path_;
  uintptr_t base_;
  Span loaded_;
  Span read_only_;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* names_ = nullptr;
  // Relocations of data and of calls, and the bytes of each table.
  uintptr_t tables_[2] = {0, 0};
  uint64_t table_bytes_[2] = {0, 0};
};

}  // namespace arraybridge
